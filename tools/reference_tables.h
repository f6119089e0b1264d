// Tables of README.md, printed from what they describe.
#ifndef QUIRE_TOOLS_REFERENCE_TABLES_H_
#define QUIRE_TOOLS_REFERENCE_TABLES_H_

#include <string>

#include "tools/table.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quire {

Table OpTable();
Table PassTable();
// Every flag of every verb of `root`.
Table FlagTable(const CLI::App& root);

}  // namespace quire

#endif  // QUIRE_TOOLS_REFERENCE_TABLES_H_
