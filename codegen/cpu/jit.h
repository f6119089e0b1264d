// LLVM behind a small door: IR text in, machine code out. The only user of LLVM's headers.
//
// Threads: CompileObject may run on several threads at once; Load and Lookup serialise inside.
// Errors:  INTERNAL when generated IR does not parse or verify, with LLVM's words and the line;
//          UNAVAILABLE when the host lacks what kernels need (HostIsa); DATA_LOSS when an object
//          does not load.
#ifndef QUIRE_CODEGEN_CPU_JIT_H_
#define QUIRE_CODEGEN_CPU_JIT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// What code is generated for. Kernels give the same bits on every Isa; only speed differs.
struct Isa {
  // How four-byte integer dot products are done; all exact.
  enum class Dot {
    kPortable,  // shifts and 32-bit multiplies
    kMadd,      // AVX2 vpmaddwd on widened bytes
    kVnni256,   // vpdpbusd on 256-bit vectors
    kVnni512,   // vpdpbusd on 512-bit vectors
  };
  std::string cpu;       // LLVM's name, "znver4"
  std::string features;  // LLVM's list, "+avx2,-amx-tile"
  Dot dot = Dot::kPortable;

  std::string Key() const;  // equal keys: equal object code for equal IR
};

// The machine that runs this process; UNAVAILABLE on x86 without AVX2, FMA and F16C.
absl::StatusOr<Isa> HostIsa();
// The lowest level that kernels support (x86-64-v3): lets tests compare levels on one machine.
Isa BaselineIsa();

// "LLVM 19.1.7"
std::string CompilerVersion();
// The version and the passes: equal keys make equal code of equal IR for equal Isas.
std::string CompilerKey();

// Optimised object code of one module. The text carries neither triple nor data layout.
absl::StatusOr<std::string> CompileObject(absl::string_view ir, const Isa& isa);
// The same as assembly, for `quire dump` and for people.
absl::StatusOr<std::string> CompileAssembly(absl::string_view ir, const Isa& isa);

// Loaded object code; symbols of one object are invisible to others.
class CodeLoader {
 public:
  static absl::StatusOr<std::unique_ptr<CodeLoader>> Create();
  ~CodeLoader();
  CodeLoader(const CodeLoader&) = delete;
  CodeLoader& operator=(const CodeLoader&) = delete;

  // A loaded object; valid while the loader lives.
  class Code {
   public:
    // Address of an entry point, linked on first use; DATA_LOSS when there is none of that name.
    absl::StatusOr<void*> Find(absl::string_view entry) const;

   private:
    friend class CodeLoader;
    CodeLoader* loader_ = nullptr;
    void* library_ = nullptr;
  };
  absl::StatusOr<Code> Load(absl::string_view object);

 private:
  struct State;
  explicit CodeLoader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_JIT_H_
