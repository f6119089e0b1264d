#include "models/import/json.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/file.h"
#include "ir/status.h"
#include "models/import/tensor_index.h"

namespace quire {
namespace {

using nlohmann::json;

// Walks a text without building it; the first thing that is wrong ends the walk and is kept in
// problem().
class Validator : public nlohmann::json_sax<json> {
 public:
  const std::string& problem() const { return problem_; }
  // Offset of the problem, where the parser reported one.
  size_t position() const { return position_; }

  bool null() override { return Scalar(); }
  bool boolean(bool) override { return Scalar(); }
  bool number_integer(number_integer_t) override { return Scalar(); }
  bool number_unsigned(number_unsigned_t) override { return Scalar(); }
  bool number_float(number_float_t, const string_t&) override { return Scalar(); }
  bool string(string_t&) override { return Scalar(); }
  bool binary(binary_t&) override { return Scalar(); }
  bool start_array(std::size_t) override {
    if (keys_.empty()) return Scalar();
    return Enter();
  }
  bool end_array() override { return Leave(); }
  bool start_object(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    return Fail(absl::StrCat("key ", Quoted(name), " appears twice in one object"));
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    position_ = position;
    return Fail("not JSON");
  }

 private:
  bool Scalar() { return keys_.empty() ? Fail("the file is not a JSON object") : true; }
  bool Enter() {
    if (keys_.size() >= kMaxJsonDepth) {
      return Fail(absl::StrCat("nested deeper than ", kMaxJsonDepth, " levels"));
    }
    keys_.emplace_back();
    return true;
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }
  bool Fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  std::vector<absl::flat_hash_set<std::string>> keys_;  // of each open object; empty set for arrays
  std::string problem_;
  size_t position_ = 0;
};

std::string Place(absl::string_view file, absl::string_view text, size_t position) {
  if (position == 0) return std::string(file);
  // The parser counts the byte it stopped at, from 1.
  const absl::string_view before = text.substr(0, std::min(position - 1, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const size_t column = before.size() - (newline == absl::string_view::npos ? 0 : newline + 1) + 1;
  return absl::StrCat(file, ":", line, ":", column);
}

}  // namespace

absl::StatusOr<json> ParseJsonObject(absl::string_view text, absl::string_view file) {
  Validator validator;
  if (!json::sax_parse(text.begin(), text.end(), &validator)) {
    return WithLine(absl::DataLossError(absl::StrCat(Place(file, text, validator.position()), ": ",
                                                     validator.problem())),
                    "fix", "correct the file there, or get it again");
  }
  json value = json::parse(text.begin(), text.end(), nullptr, false);
  if (!value.is_object()) return absl::DataLossError(absl::StrCat(file, ": not JSON"));
  return value;
}

absl::StatusOr<json> ReadJsonObject(absl::string_view path) {
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return ParseJsonObject(file.text(), path);
}

absl::Status WithFileFix(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status) || absl::StrContains(status.message(), "\n  fix: ")) {
    return status;
  }
  return WithLine(status, "fix", "correct the file, or get it again");
}

namespace {

// `value`, of which no more is written once the text is long; the elements of what lies in another
// array or object are only counted.
std::string ValueText(const json& value, bool is_inner) {
  constexpr size_t kLongest = 60;  // bytes
  if (value.is_string()) return Quoted(*value.get_ptr<const std::string*>());
  if (!value.is_structured()) return value.dump();
  if (is_inner && !value.empty()) return value.is_array() ? "[...]" : "{...}";
  std::string text;
  size_t shown = 0;
  for (const auto& item : value.items()) {
    std::string element = ValueText(item.value(), /*is_inner=*/true);
    if (value.is_object()) element = absl::StrCat(Quoted(item.key()), ": ", element);
    if (shown > 0 && text.size() + element.size() > kLongest) break;
    absl::StrAppend(&text, shown++ == 0 ? "" : ", ", element);
  }
  if (shown < value.size()) absl::StrAppend(&text, ", ... (", value.size(), " in all)");
  return value.is_array() ? absl::StrCat("[", text, "]") : absl::StrCat("{", text, "}");
}

}  // namespace

std::string JsonValueText(const json& value) { return ValueText(value, /*is_inner=*/false); }

}  // namespace quire
