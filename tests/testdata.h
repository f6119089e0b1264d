// Where the files lie that tests read.
#ifndef QUIRE_TESTS_TESTDATA_H_
#define QUIRE_TESTS_TESTDATA_H_

#include <string>

namespace quire {

// `path` is relative to tests/, or where QUIRE_TESTDATA is set, to that folder: tests may run
// without the tree that they were built from (tools/bench/gpu_job.sh). Defined in a source of its
// own: the folder's name is then no part of what other objects are compiled from, and a compiler
// cache can share them among checkouts.
std::string TestData(const std::string& path);

}  // namespace quire

#endif  // QUIRE_TESTS_TESTDATA_H_
