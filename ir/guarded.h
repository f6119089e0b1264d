// No exception crosses the interface of the library: what the standard library throws where memory
// or threads run out becomes a status.
#ifndef QUIRE_IR_GUARDED_H_
#define QUIRE_IR_GUARDED_H_

#include <new>
#include <system_error>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace quire {

// RESOURCE_EXHAUSTED with what to do.
absl::Status UsedUp(absl::string_view what);

// What `body` returns, a Status or a StatusOr; RESOURCE_EXHAUSTED where it throws.
template <typename Body>
std::invoke_result_t<Body> Guarded(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return UsedUp("the memory is used up");
  } catch (const std::system_error& error) {  // of threads
    return UsedUp(error.what());
  }
}

}  // namespace quire

#endif  // QUIRE_IR_GUARDED_H_
