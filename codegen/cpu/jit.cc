#include "codegen/cpu/jit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ir/status.h"

namespace quire {
namespace {

void InitialiseOnce() {
  static const bool done = [] {
    LLVMInitializeNativeTarget();
    LLVMInitializeNativeAsmPrinter();
    LLVMInitializeNativeAsmParser();
    return true;
  }();
  static_cast<void>(done);
}

// Takes ownership of a string that LLVM allocated.
std::string Owned(char* text) {
  std::string copy = text == nullptr ? "" : text;
  LLVMDisposeMessage(text);
  return copy;
}

absl::Status FromError(LLVMErrorRef error, absl::StatusCode code, absl::string_view what) {
  if (error == nullptr) return absl::OkStatus();
  char* message = LLVMGetErrorMessage(error);
  absl::Status status(code, absl::StrCat(what, ": ", message));
  LLVMDisposeErrorMessage(message);
  return status;
}

struct DisposeMachine {
  void operator()(LLVMTargetMachineRef machine) const { LLVMDisposeTargetMachine(machine); }
};
struct DisposeModule {
  void operator()(LLVMModuleRef module) const { LLVMDisposeModule(module); }
};
struct DisposeContext {
  void operator()(LLVMContextRef context) const { LLVMContextDispose(context); }
};
using Machine = std::unique_ptr<LLVMOpaqueTargetMachine, DisposeMachine>;
using ModuleHandle = std::unique_ptr<LLVMOpaqueModule, DisposeModule>;
using Context = std::unique_ptr<LLVMOpaqueContext, DisposeContext>;

absl::StatusOr<Machine> CreateMachine(const Isa& isa) {
  InitialiseOnce();
  const std::string triple = Owned(LLVMGetDefaultTargetTriple());
  LLVMTargetRef target = nullptr;
  char* error = nullptr;
  if (LLVMGetTargetFromTriple(triple.c_str(), &target, &error) != 0) {
    return absl::UnavailableError(absl::StrCat("cpu: no code generator: ", Owned(error)));
  }
  Machine machine(LLVMCreateTargetMachine(target, triple.c_str(), isa.cpu.c_str(),
                                          isa.features.c_str(), LLVMCodeGenLevelAggressive,
                                          LLVMRelocPIC, LLVMCodeModelSmall));
  if (machine == nullptr) return absl::UnavailableError(absl::StrCat("cpu: no target ", triple));
  return machine;
}

// Emitters write vectors, unrolled as they should be: what is left to do is to keep locals in
// registers, to share and move invariants, and to tidy up. The usual pipeline gives code of the
// same speed in two to three times the time.
constexpr char kPasses[] =
    "function(sroa,early-cse<memssa>,simplifycfg,loop-mssa(loop-rotate,licm),early-cse<memssa>,"
    "instcombine,simplifycfg)";

absl::Status Optimise(LLVMModuleRef module, LLVMTargetMachineRef machine) {
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(module, kPasses, machine, options);
  LLVMDisposePassBuilderOptions(options);
  return FromError(error, absl::StatusCode::kInternal, "cpu: optimiser");
}

absl::StatusOr<std::string> Compile(absl::string_view ir, const Isa& isa,
                                    LLVMCodeGenFileType type) {
  QUIRE_ASSIGN_OR_RETURN(Machine machine, CreateMachine(isa));
  const Context context(LLVMContextCreate());
  // The buffer needs a terminator, which a string_view does not promise: copy.
  LLVMMemoryBufferRef buffer =
      LLVMCreateMemoryBufferWithMemoryRangeCopy(ir.data(), ir.size(), "kernel");
  LLVMModuleRef parsed = nullptr;
  char* error = nullptr;
  if (LLVMParseIRInContext(context.get(), buffer, &parsed, &error) != 0) {
    return absl::InternalError(absl::StrCat("cpu: generated IR: ", Owned(error)));
  }
  const ModuleHandle module(parsed);
  LLVMSetTarget(module.get(), Owned(LLVMGetDefaultTargetTriple()).c_str());
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine.get());
  LLVMSetModuleDataLayout(module.get(), layout);
  LLVMDisposeTargetData(layout);
  if (LLVMVerifyModule(module.get(), LLVMReturnStatusAction, &error) != 0) {
    return absl::InternalError(absl::StrCat("cpu: generated IR: ", Owned(error)));
  }
  LLVMDisposeMessage(error);
  QUIRE_RETURN_IF_ERROR(Optimise(module.get(), machine.get()));
  LLVMMemoryBufferRef object = nullptr;
  error = nullptr;
  if (LLVMTargetMachineEmitToMemoryBuffer(machine.get(), module.get(), type, &error, &object) !=
      0) {
    return absl::InternalError(absl::StrCat("cpu: code generator: ", Owned(error)));
  }
  std::string bytes(LLVMGetBufferStart(object), LLVMGetBufferSize(object));
  LLVMDisposeMemoryBuffer(object);
  return bytes;
}

}  // namespace

std::string Isa::Key() const {
  return absl::StrCat(cpu, " ", features, " dot=", static_cast<int>(dot));
}

absl::StatusOr<Isa> HostIsa() {
  InitialiseOnce();
  Isa isa;
  isa.cpu = Owned(LLVMGetHostCPUName());
  isa.features = Owned(LLVMGetHostCPUFeatures());
  const std::vector<std::string> features = absl::StrSplit(isa.features, ',');
  const auto has = [&features](absl::string_view name) {
    for (const std::string& feature : features) {
      if (feature == absl::StrCat("+", name)) return true;
    }
    return false;
  };
#if defined(__x86_64__)
  for (const char* needed : {"avx2", "fma", "f16c"}) {
    if (!has(needed)) {
      return absl::UnavailableError(absl::StrCat("cpu: ", isa.cpu, " has no ", needed,
                                                 "\n  allowed: x86-64 with AVX2, FMA and F16C"));
    }
  }
  isa.dot = has("avx512vnni") && has("avx512bw") ? Isa::Dot::kVnni512
            : has("avxvnni")                     ? Isa::Dot::kVnni256
                                                 : Isa::Dot::kMadd;
#endif
  return isa;
}

Isa BaselineIsa() {
#if defined(__x86_64__)
  return {"x86-64-v3", "", Isa::Dot::kMadd};
#else
  return {"generic", "", Isa::Dot::kPortable};
#endif
}

std::string CompilerVersion() {
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  return absl::StrCat("LLVM ", major, ".", minor, ".", patch);
}

std::string CompilerKey() { return absl::StrCat(CompilerVersion(), " ", kPasses); }

absl::StatusOr<std::string> CompileObject(absl::string_view ir, const Isa& isa) {
  return Compile(ir, isa, LLVMObjectFile);
}

absl::StatusOr<std::string> CompileAssembly(absl::string_view ir, const Isa& isa) {
  return Compile(ir, isa, LLVMAssemblyFile);
}

struct CodeLoader::State {
  LLVMOrcLLJITRef jit = nullptr;
  std::mutex mutex;
  int libraries = 0;
};

CodeLoader::CodeLoader(std::unique_ptr<State> state) : state_(std::move(state)) {}

CodeLoader::~CodeLoader() {
  // A failure to unload leaves memory behind, and nobody to tell.
  if (LLVMErrorRef error = LLVMOrcDisposeLLJIT(state_->jit)) LLVMConsumeError(error);
}

absl::StatusOr<std::unique_ptr<CodeLoader>> CodeLoader::Create() {
  InitialiseOnce();
  auto state = std::make_unique<State>();
  QUIRE_RETURN_IF_ERROR(FromError(LLVMOrcCreateLLJIT(&state->jit, nullptr),
                                  absl::StatusCode::kUnavailable, "cpu: code loader"));
  return std::unique_ptr<CodeLoader>(new CodeLoader(std::move(state)));
}

absl::StatusOr<CodeLoader::Code> CodeLoader::Load(absl::string_view object) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  LLVMOrcExecutionSessionRef session = LLVMOrcLLJITGetExecutionSession(state_->jit);
  Code code;
  code.loader_ = this;
  LLVMOrcJITDylibRef library = nullptr;
  QUIRE_RETURN_IF_ERROR(
      FromError(LLVMOrcExecutionSessionCreateJITDylib(
                    session, &library, absl::StrCat("kernel", state_->libraries++).c_str()),
                absl::StatusCode::kInternal, "cpu: code loader"));
  // memset and memcpy, should the code generator call them.
  LLVMOrcDefinitionGeneratorRef process = nullptr;
  QUIRE_RETURN_IF_ERROR(
      FromError(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
                    &process, LLVMOrcLLJITGetGlobalPrefix(state_->jit), nullptr, nullptr),
                absl::StatusCode::kInternal, "cpu: code loader"));
  LLVMOrcJITDylibAddGenerator(library, process);
  LLVMMemoryBufferRef buffer =
      LLVMCreateMemoryBufferWithMemoryRangeCopy(object.data(), object.size(), "kernel.o");
  QUIRE_RETURN_IF_ERROR(FromError(LLVMOrcLLJITAddObjectFile(state_->jit, library, buffer),
                                  absl::StatusCode::kDataLoss, "cpu: object code"));
  code.library_ = library;
  return code;
}

absl::StatusOr<void*> CodeLoader::Code::Find(absl::string_view entry) const {
  State& state = *loader_->state_;
  const std::lock_guard<std::mutex> lock(state.mutex);
  LLVMOrcSymbolStringPoolEntryRef name =
      LLVMOrcLLJITMangleAndIntern(state.jit, std::string(entry).c_str());
  LLVMOrcCJITDylibSearchOrderElement library{static_cast<LLVMOrcJITDylibRef>(library_),
                                             LLVMOrcJITDylibLookupFlagsMatchExportedSymbolsOnly};
  LLVMOrcCLookupSetElement symbol{name, LLVMOrcSymbolLookupFlagsRequiredSymbol};
  // Links the object now, on this thread; the callback has run when the call returns.
  absl::StatusOr<void*> result = absl::InternalError("cpu: code loader gave no answer");
  LLVMOrcExecutionSessionLookup(
      LLVMOrcLLJITGetExecutionSession(state.jit), LLVMOrcLookupKindStatic, &library, 1, &symbol, 1,
      [](LLVMErrorRef error, LLVMOrcCSymbolMapPairs pairs, size_t count, void* context) {
        auto& answer = *static_cast<absl::StatusOr<void*>*>(context);
        if (error != nullptr || count != 1) {
          answer = FromError(error, absl::StatusCode::kDataLoss, "cpu: object code");
        } else {
          answer = reinterpret_cast<void*>(pairs[0].Sym.Address);
        }
      },
      &result);
  return result;
}

}  // namespace quire
