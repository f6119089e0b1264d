// Rows under named columns: as aligned text for people, as Markdown for README.md, as JSON for
// programs.
#ifndef QUIRE_TOOLS_TABLE_H_
#define QUIRE_TOOLS_TABLE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "nlohmann/json.hpp"

namespace quire {

class Table {
 public:
  using Cell = std::variant<std::string, int64_t, double>;

  explicit Table(std::vector<std::string> columns) : columns_(std::move(columns)) {}
  // REQUIRES: one cell for each column.
  void AddRow(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  size_t row_count() const { return rows_.size(); }

  // Columns two spaces apart, numbers on the right.
  std::string Text() const;
  std::string Markdown() const;
  // A list of objects by column name.
  nlohmann::ordered_json Json() const;

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace quire

#endif  // QUIRE_TOOLS_TABLE_H_
