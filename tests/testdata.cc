#include "tests/testdata.h"

namespace quire {

std::string TestData(const std::string& path) { return std::string(QUIRE_TESTDATA "/") + path; }

}  // namespace quire
