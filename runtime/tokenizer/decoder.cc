#include "runtime/tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {
namespace {

using plan::DecoderKind;

class AppendTo : public DecodeStage {
 public:
  explicit AppendTo(std::string* out) : out_(out) {}
  void Push(absl::string_view text, bool) override { out_->append(text.data(), text.size()); }
  void Finish() override {}

 private:
  std::string* out_;
};

// Without any decoder: one space between tokens.
class JoinWithSpaces : public DecodeStage {
 public:
  explicit JoinWithSpaces(DecodeStage* next) : next_(next) {}
  void Push(absl::string_view text, bool ends_token) override {
    if (after_token_) next_->Push(" ", /*ends_token=*/false);
    after_token_ = ends_token;
    next_->Push(text, ends_token);
  }
  void Finish() override { next_->Finish(); }

 private:
  DecodeStage* next_;
  bool after_token_ = false;
};

class ByteLevelStage : public DecodeStage {
 public:
  explicit ByteLevelStage(DecodeStage* next) : next_(next) {}

  void Push(absl::string_view text, bool ends_token) override {
    token_.append(text.data(), text.size());
    if (!ends_token) return;
    // A token with any other character, such as an added one, stands for its own text.
    if (!AppendBytesOf(token_, &bytes_)) bytes_.append(token_);
    token_.clear();
    Emit(/*is_last=*/false);
  }

  void Finish() override {
    Emit(/*is_last=*/true);
    next_->Finish();
  }

 private:
  void Emit(bool is_last) {
    std::string out;
    absl::string_view rest = bytes_;
    while (!rest.empty()) {
      const size_t valid = ValidUtf8Prefix(rest);
      out.append(rest.data(), valid);
      rest.remove_prefix(valid);
      if (rest.empty()) break;
      const Utf8Start invalid = ScanUtf8(rest);
      if (invalid.kind == Utf8Start::kTruncated && !is_last) break;  // later bytes may complete it
      out.append(kReplacementCharacter.data(), kReplacementCharacter.size());
      rest.remove_prefix(invalid.bytes);
    }
    bytes_ = std::string(rest);
    if (!out.empty() || is_last) next_->Push(out, is_last);
  }

  DecodeStage* next_;
  std::string token_;
  std::string bytes_;
};

class ByteFallbackStage : public DecodeStage {
 public:
  explicit ByteFallbackStage(DecodeStage* next) : next_(next) {}

  void Push(absl::string_view text, bool ends_token) override {
    token_.append(text.data(), text.size());
    if (!ends_token) return;
    int byte;
    if (token_.size() == 6 && absl::StartsWith(token_, "<0x") && token_[5] == '>' &&
        ParseByte(&byte)) {
      run_.push_back(static_cast<char>(byte));
    } else {
      EmitRun();
      next_->Push(token_, /*ends_token=*/true);
    }
    token_.clear();
  }

  void Finish() override {
    EmitRun();
    next_->Finish();
  }

 private:
  bool ParseByte(int* byte) const {
    *byte = 0;
    for (const char c : {token_[3], token_[4]}) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                               : -1;
      if (digit < 0) return false;
      *byte = *byte * 16 + digit;
    }
    return true;
  }

  // A run of bytes is one token if all of it is UTF-8, and else as many replacement characters as
  // bytes.
  void EmitRun() {
    if (run_.empty()) return;
    if (ValidUtf8Prefix(run_) == run_.size()) {
      next_->Push(run_, /*ends_token=*/true);
    } else {
      for (size_t i = 0; i < run_.size(); ++i)
        next_->Push(kReplacementCharacter, /*ends_token=*/true);
    }
    run_.clear();
  }

  DecodeStage* next_;
  std::string token_;
  std::string run_;
};

class FuseStage : public DecodeStage {
 public:
  explicit FuseStage(DecodeStage* next) : next_(next) {}
  void Push(absl::string_view text, bool) override { next_->Push(text, /*ends_token=*/false); }
  void Finish() override {
    next_->Push("", /*ends_token=*/true);
    next_->Finish();
  }

 private:
  DecodeStage* next_;
};

// Replaces each match of a literal within a token.
class ReplaceStage : public DecodeStage {
 public:
  ReplaceStage(std::string pattern, std::string content, DecodeStage* next)
      : pattern_(std::move(pattern)), content_(std::move(content)), next_(next) {}

  void Push(absl::string_view text, bool ends_token) override {
    held_.append(text.data(), text.size());
    std::string out;
    size_t done = 0;
    for (size_t at = held_.find(pattern_); at != std::string::npos;
         at = held_.find(pattern_, done)) {
      out.append(held_, done, at - done);
      out.append(content_);
      done = at + pattern_.size();
    }
    const size_t keep = ends_token ? 0 : PossibleMatchBytes(absl::string_view(held_).substr(done));
    out.append(held_, done, held_.size() - keep - done);
    held_.erase(0, held_.size() - keep);
    if (!out.empty() || ends_token) next_->Push(out, ends_token);
  }

  void Finish() override { next_->Finish(); }

 private:
  // The longest end of `text` that the next chunk may make a match.
  size_t PossibleMatchBytes(absl::string_view text) const {
    for (size_t bytes = std::min(text.size(), pattern_.size() - 1); bytes > 0; --bytes) {
      if (absl::EndsWith(text, absl::string_view(pattern_).substr(0, bytes))) return bytes;
    }
    return 0;
  }

  std::string pattern_;
  std::string content_;
  DecodeStage* next_;
  std::string held_;
};

// Replacement characters of the first token vanish, where a prefix was added to the text; others
// become spaces.
class MetaspaceStage : public DecodeStage {
 public:
  MetaspaceStage(const std::string& replacement, bool has_prefix, DecodeStage* next)
      : first_(replacement, has_prefix ? "" : " ", next),
        others_(replacement, " ", next),
        next_(next) {}

  void Push(absl::string_view text, bool ends_token) override {
    (is_first_ ? first_ : others_).Push(text, ends_token);
    is_first_ = is_first_ && !ends_token;
  }

  void Finish() override { next_->Finish(); }

 private:
  ReplaceStage first_;
  ReplaceStage others_;
  DecodeStage* next_;
  bool is_first_ = true;
};

class StripStage : public DecodeStage {
 public:
  StripStage(const plan::TokenDecoderT& spec, DecodeStage* next)
      : content_(spec.content),
        start_(spec.start),
        stop_(spec.stop),
        next_(next),
        to_strip_(spec.start) {}

  void Push(absl::string_view text, bool ends_token) override {
    while (to_strip_ > 0 && absl::StartsWith(text, content_)) {
      text.remove_prefix(content_.size());
      --to_strip_;
    }
    if (!text.empty()) to_strip_ = 0;
    held_.append(text.data(), text.size());
    // At the token's end up to stop_ of them go; before that they wait.
    size_t tail = 0;
    absl::string_view rest = held_;
    while (tail < stop_ && absl::EndsWith(rest, content_)) {
      rest.remove_suffix(content_.size());
      ++tail;
    }
    if (!rest.empty() || ends_token) next_->Push(rest, ends_token);
    held_.erase(0, rest.size());
    if (!ends_token) return;
    held_.clear();
    to_strip_ = start_;
  }

  void Finish() override { next_->Finish(); }

 private:
  std::string content_;
  uint32_t start_;
  uint32_t stop_;
  DecodeStage* next_;
  uint32_t to_strip_;
  std::string held_;
};

std::unique_ptr<DecodeStage> MakeStage(const plan::TokenDecoderT& spec, DecodeStage* next) {
  switch (spec.kind) {
    case DecoderKind::kByteLevel:
      return std::make_unique<ByteLevelStage>(next);
    case DecoderKind::kByteFallback:
      return std::make_unique<ByteFallbackStage>(next);
    case DecoderKind::kFuse:
      return std::make_unique<FuseStage>(next);
    case DecoderKind::kMetaspace:
      return std::make_unique<MetaspaceStage>(
          spec.pattern, spec.prepend_scheme != plan::PrependScheme::kNever, next);
    case DecoderKind::kReplace:
      return std::make_unique<ReplaceStage>(spec.pattern, spec.content, next);
    case DecoderKind::kStrip:
      return std::make_unique<StripStage>(spec, next);
  }
  return nullptr;  // CheckDecoders refused it
}

}  // namespace

DecodeChain::DecodeChain(const std::vector<std::unique_ptr<plan::TokenDecoderT>>& specs,
                         std::string* out) {
  stages_.push_back(std::make_unique<AppendTo>(out));
  if (specs.empty()) stages_.push_back(std::make_unique<JoinWithSpaces>(stages_.back().get()));
  for (auto spec = specs.rbegin(); spec != specs.rend(); ++spec) {
    stages_.push_back(MakeStage(**spec, stages_.back().get()));
  }
}

absl::Status CheckDecoders(const std::vector<std::unique_ptr<plan::TokenDecoderT>>& specs) {
  for (const auto& spec : specs) {
    if (spec == nullptr || spec->kind > DecoderKind::MAX ||
        spec->prepend_scheme > plan::PrependScheme::MAX) {
      return absl::InvalidArgumentError("decoder: unknown kind or scheme");
    }
    const bool has_pattern =
        spec->kind == DecoderKind::kReplace || spec->kind == DecoderKind::kMetaspace;
    if (has_pattern && spec->pattern.empty()) {
      return absl::InvalidArgumentError("decoder: the pattern is empty");
    }
    if (spec->kind == DecoderKind::kStrip && spec->content.empty()) {
      return absl::InvalidArgumentError("decoder: strip's content is empty");
    }
    for (const std::string* text : {&spec->pattern, &spec->content}) {
      if (ValidUtf8Prefix(*text) != text->size()) {
        return absl::InvalidArgumentError("decoder: a pattern or content is not UTF-8");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::tokenizer
