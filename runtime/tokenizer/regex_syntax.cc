#include "runtime/tokenizer/regex_syntax.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire::tokenizer {
namespace {

// ICU's \w has the zero-width joiners too, and its \b looks through combining marks. Oniguruma's \w
// differs by place: outside a set, and so for \b, it also has the superscript digits and fractions
// of Latin-1.
#define QUIRE_WORD_IN_SET R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})"
#define QUIRE_WORD QUIRE_WORD_IN_SET R"(\xb2\xb3\xb9\xbc-\xbe)"
constexpr absl::string_view kWordInSet = "[" QUIRE_WORD_IN_SET "]";
constexpr absl::string_view kNotWordInSet = "[^" QUIRE_WORD_IN_SET "]";
constexpr absl::string_view kWord = "[" QUIRE_WORD "]";
constexpr absl::string_view kNotWord = "[^" QUIRE_WORD "]";
constexpr absl::string_view kBoundary =
    "(?:(?<=[" QUIRE_WORD "])(?![" QUIRE_WORD "])|(?<![" QUIRE_WORD "])(?=[" QUIRE_WORD "]))";
constexpr absl::string_view kNoBoundary =
    "(?:(?<=[" QUIRE_WORD "])(?=[" QUIRE_WORD "])|(?<![" QUIRE_WORD "])(?![" QUIRE_WORD "]))";
#undef QUIRE_WORD
#undef QUIRE_WORD_IN_SET

class Rewriter {
 public:
  explicit Rewriter(absl::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < in_.size()) {
      switch (in_[at_]) {
        case '\\':
          QUIRE_RETURN_IF_ERROR(Escape(/*in_set=*/false));
          break;
        case '[':
          QUIRE_RETURN_IF_ERROR(Set());
          break;
        case '(':
          QUIRE_RETURN_IF_ERROR(Group());
          break;
        case '{':
          QUIRE_RETURN_IF_ERROR(Interval());
          break;
        default:
          Copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  absl::string_view Rest() const { return in_.substr(at_); }

  void Copy(size_t bytes) {
    const absl::string_view text = Rest().substr(0, bytes);
    out_.append(text.data(), text.size());
    at_ += text.size();
  }

  void Replace(size_t bytes, absl::string_view text) {
    at_ += bytes;
    out_.append(text.data(), text.size());
  }

  absl::Status Refuse(absl::string_view construct) const {
    return absl::UnimplementedError(
        absl::StrCat("regex ", in_, ": ", construct, " is not supported (at byte ", at_, ")"));
  }

  absl::Status Escape(bool in_set) {
    if (Rest().size() < 2) return Refuse("a backslash at the end");
    const char c = Rest()[1];
    switch (c) {
      case 'p':
      case 'P': {
        const size_t close = Rest().find('}');
        if (Rest().size() < 3 || Rest()[2] != '{' || close == absl::string_view::npos) {
          return Refuse("a property without braces");
        }
        if (absl::StrContains(Rest().substr(0, close), '^')) return Refuse("\\p{^...}");
        Copy(close + 1);
        return absl::OkStatus();
      }
      case 'v':  // ICU: any vertical space
        Replace(2, "\\x{0B}");
        return absl::OkStatus();
      case 'w':
        Replace(2, in_set ? kWordInSet : kWord);
        return absl::OkStatus();
      case 'W':
        Replace(2, in_set ? kNotWordInSet : kNotWord);
        return absl::OkStatus();
      case 'b':
        Replace(2, in_set ? "\\x{08}" : kBoundary);
        return absl::OkStatus();
      case 'B':
        if (in_set) return Refuse("\\B in a set");
        Replace(2, kNoBoundary);
        return absl::OkStatus();
      case 's':
      case 'S':
      case 'd':
      case 'D':
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e':
      case 'x':
      case 'u':
      case 'A':
      case 'z':
      case 'Z':
      case 'R':
        Copy(2);
        return absl::OkStatus();
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
          return Refuse(absl::StrCat("\\", in_.substr(at_ + 1, 1)));
        }
        Copy(2);  // a non-ASCII character may follow: its further bytes are copied as literals
        return absl::OkStatus();
    }
  }

  absl::Status Group() {
    if (!absl::StartsWith(Rest(), "(?")) {
      Copy(1);
      return absl::OkStatus();
    }
    for (const absl::string_view opening :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (absl::StartsWith(Rest(), opening)) {
        Copy(opening.size());
        return absl::OkStatus();
      }
    }
    return Refuse(absl::StrCat("group ", Rest().substr(0, 4)));
  }

  absl::Status Interval() {
    const size_t close = Rest().find('}');
    if (close == absl::string_view::npos) return Refuse("an interval without }");
    const absl::string_view body = Rest().substr(1, close - 1);
    for (const char c : body) {
      if ((c < '0' || c > '9') && c != ',') return Refuse("{ other than an interval's");
    }
    if (body.empty() || body[0] == ',') return Refuse("an interval without a lower bound");
    const char next = close + 1 < Rest().size() ? Rest()[close + 1] : '\0';
    // Ruby reads these as an interval that is repeated, and that is optional.
    if (next == '+') return Refuse("{n,m}+");
    if (next == '?' && !absl::StrContains(body, ',')) return Refuse("{n}?");
    Copy(close + 1);
    return absl::OkStatus();
  }

  // A set, with the sets inside it: iterative, so that depth costs nothing.
  absl::Status Set() {
    int depth = 0;
    do {
      const absl::string_view rest = Rest();
      if (rest.empty()) return Refuse("a set without ]");
      if (rest[0] == '[') {
        if (absl::StartsWith(rest, "[:")) return Refuse("a POSIX bracket");
        if (absl::StartsWith(rest, "[]") || absl::StartsWith(rest, "[^]"))
          return Refuse("] as a set's first");
        ++depth;
        Copy(absl::StartsWith(rest, "[^") ? 2 : 1);
      } else if (rest[0] == ']') {
        --depth;
        Copy(1);
      } else if (rest[0] == '\\') {
        QUIRE_RETURN_IF_ERROR(Escape(/*in_set=*/true));
      } else if (absl::StartsWith(rest, "--") || absl::StartsWith(rest, "-[")) {
        return Refuse("-- and -[ in a set");  // ICU: difference
      } else {
        Copy(1);
      }
    } while (depth > 0);
    return absl::OkStatus();
  }

  absl::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> ToIcuSyntax(absl::string_view pattern) {
  return Rewriter(pattern).Run();
}

}  // namespace quire::tokenizer
