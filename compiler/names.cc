#include "compiler/names.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace quire {
namespace {

absl::string_view WithoutSuffix(absl::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos || dot == 0) return name;
  const absl::string_view suffix = name.substr(dot + 1);
  const bool is_number = !suffix.empty() && std::all_of(suffix.begin(), suffix.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  return is_number ? name.substr(0, dot) : name;
}

}  // namespace

absl::string_view ScopeOf(absl::string_view name) {
  const size_t dot = WithoutSuffix(name).rfind('.');
  return dot == absl::string_view::npos ? "" : name.substr(0, dot + 1);
}

absl::string_view WordOf(absl::string_view name) {
  return WithoutSuffix(name).substr(ScopeOf(name).size());
}

}  // namespace quire
