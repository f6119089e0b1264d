#include "tools/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

std::string CellText(const Table::Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* number = std::get_if<int64_t>(&cell)) return absl::StrCat(*number);
  return absl::StrFormat("%.2f", std::get<double>(cell));
}

// Columns are counted in characters, not in bytes: the second and later bytes of a character of
// UTF-8 have the form 10xxxxxx.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

void AppendLine(std::string line, std::string* text) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  absl::StrAppend(text, line, "\n");
}

}  // namespace

std::string Table::Text() const {
  std::vector<size_t> widths;
  for (const std::string& column : columns_) widths.push_back(Width(column));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], Width(CellText(row[i])));
    }
  }
  std::string text, line;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const bool right = !rows_.empty() && !std::holds_alternative<std::string>(rows_[0][i]);
    const std::string pad(widths[i] - Width(columns_[i]), ' ');
    absl::StrAppend(&line, i == 0 ? "" : "  ", right ? pad : "", columns_[i], right ? "" : pad);
  }
  AppendLine(line, &text);
  for (const auto& row : rows_) {
    line.clear();
    for (size_t i = 0; i < row.size(); ++i) {
      const bool right = !std::holds_alternative<std::string>(row[i]);
      const std::string cell = CellText(row[i]);
      const std::string pad(widths[i] - Width(cell), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", right ? pad : "", cell, right ? "" : pad);
    }
    AppendLine(line, &text);
  }
  return text;
}

std::string Table::Markdown() const {
  std::string text = "|", rule = "|";
  for (const std::string& column : columns_) {
    absl::StrAppend(&text, " ", column, " |");
    absl::StrAppend(&rule, " --- |");
  }
  absl::StrAppend(&text, "\n", rule, "\n");
  for (const auto& row : rows_) {
    absl::StrAppend(&text, "|");
    for (const Cell& cell : row) {
      absl::StrAppend(&text, " ", absl::StrReplaceAll(CellText(cell), {{"|", "\\|"}}), " |");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

nlohmann::ordered_json Table::Json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& row : rows_) {
    nlohmann::ordered_json object;
    for (size_t i = 0; i < row.size(); ++i) {
      std::visit([&](const auto& value) { object[columns_[i]] = value; }, row[i]);
    }
    list.push_back(std::move(object));
  }
  return list;
}

}  // namespace quire
