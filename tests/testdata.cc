#include "tests/testdata.h"

#include <cstdlib>

namespace quire {

std::string TestData(const std::string& path) {
  const char* elsewhere = std::getenv("QUIRE_TESTDATA");
  return std::string(elsewhere != nullptr ? elsewhere : QUIRE_TESTDATA) + "/" + path;
}

}  // namespace quire
