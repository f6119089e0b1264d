#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "codegen/cuda/toolkit.h"
#include "ir/status.h"

namespace quire {

using Program = struct NvrtcProgramOpaque*;

// The functions of libnvrtc that are called, as its stable interface declares them.
struct Nvrtc::Functions {
  int (*Version)(int* major, int* minor);
  int (*CreateProgram)(Program* program, const char* source, const char* name, int header_count,
                       const char* const* headers, const char* const* header_names);
  int (*DestroyProgram)(Program* program);
  int (*CompileProgram)(Program program, int option_count, const char* const* options);
  int (*GetLogSize)(Program program, size_t* bytes);
  int (*GetLog)(Program program, char* log);
  int (*GetCubinSize)(Program program, size_t* bytes);
  int (*GetCubin)(Program program, char* cubin);
  int (*GetPtxSize)(Program program, size_t* bytes);
  int (*GetPtx)(Program program, char* ptx);
  const char* (*ErrorString)(int result);

  template <typename Function>
  static bool Load(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
  }

  bool LoadAll(void* library) {
    return Load(library, "nvrtcVersion", &Version) &&
           Load(library, "nvrtcCreateProgram", &CreateProgram) &&
           Load(library, "nvrtcDestroyProgram", &DestroyProgram) &&
           Load(library, "nvrtcCompileProgram", &CompileProgram) &&
           Load(library, "nvrtcGetProgramLogSize", &GetLogSize) &&
           Load(library, "nvrtcGetProgramLog", &GetLog) &&
           Load(library, "nvrtcGetCUBINSize", &GetCubinSize) &&
           Load(library, "nvrtcGetCUBIN", &GetCubin) &&
           Load(library, "nvrtcGetPTXSize", &GetPtxSize) && Load(library, "nvrtcGetPTX", &GetPtx) &&
           Load(library, "nvrtcGetErrorString", &ErrorString);
  }
};

namespace {

// `prefix`: of CudaToolkitFolders.
void* OpenVersion(const std::string& prefix, const char* version) {
  if (!prefix.empty()) {
    // From a folder outside the loader's path libnvrtc does not find its own second library, unless
    // it is loaded already.
    for (const char* full :
         {"13.3", "13.2", "13.1", "13.0", "12.9", "12.8", "12.6", "12.4", "12.1", "12.0"}) {
      if (absl::string_view(full).substr(0, 2) != version) continue;
      if (dlopen(absl::StrCat(prefix, "libnvrtc-builtins.so.", full).c_str(),
                 RTLD_NOW | RTLD_LOCAL))
        break;
    }
  }
  return dlopen(absl::StrCat(prefix, "libnvrtc.so.", version).c_str(), RTLD_NOW | RTLD_LOCAL);
}

void* OpenLibrary() {
  for (const std::string& folder : CudaToolkitFolders()) {
    for (const char* version : kCudaToolkitVersions) {
      if (void* library = OpenVersion(folder, version)) return library;
    }
  }
  return nullptr;
}

// The text that `size` and `get` return, without its final zero byte.
template <typename Size, typename Get>
std::string Fetch(Program program, Size size, Get get, bool is_text) {
  size_t bytes = 0;
  if (size(program, &bytes) != 0 || bytes == 0) return "";
  std::string text(bytes, '\0');
  if (get(program, text.data()) != 0) return "";
  if (is_text) text.pop_back();
  return text;
}

// The number before `unit` in a line such as "0 bytes spill stores, 0 bytes spill loads".
int NumberBefore(absl::string_view line, absl::string_view unit) {
  const size_t at = line.find(unit);
  if (at == absl::string_view::npos) return 0;
  const std::vector<absl::string_view> words =
      absl::StrSplit(line.substr(0, at), ' ', absl::SkipEmpty());
  int number = 0;
  if (!words.empty()) (void)absl::SimpleAtoi(words.back(), &number);
  return number;
}

}  // namespace

std::vector<KernelResources> ParseResources(absl::string_view log) {
  std::vector<KernelResources> kernels;
  for (absl::string_view line : absl::StrSplit(log, '\n')) {
    constexpr absl::string_view kEntry = "Compiling entry function '";
    const size_t entry = line.find(kEntry);
    if (entry != absl::string_view::npos) {
      const absl::string_view rest = line.substr(entry + kEntry.size());
      kernels.emplace_back();
      kernels.back().name = std::string(rest.substr(0, rest.find('\'')));
    } else if (!kernels.empty() && line.find("stack frame") != absl::string_view::npos) {
      kernels.back().stack_bytes = NumberBefore(line, " bytes stack frame");
      kernels.back().spill_store_bytes = NumberBefore(line, " bytes spill stores");
      kernels.back().spill_load_bytes = NumberBefore(line, " bytes spill loads");
    } else if (!kernels.empty() && line.find(" registers") != absl::string_view::npos) {
      kernels.back().registers = NumberBefore(line, " registers");
      kernels.back().static_shared_bytes = NumberBefore(line, " bytes smem");
    }
  }
  return kernels;
}

absl::StatusOr<Nvrtc> Nvrtc::Open() {
  void* library = OpenLibrary();
  if (library == nullptr) {
    return WithLine(
        absl::UnavailableError("cuda: no NVRTC library: libnvrtc.so.13 or libnvrtc.so.12"), "fix",
        "install CUDA's NVRTC package or set CUDA_HOME; plans with cubins for this GPU run without "
        "it");
  }
  auto functions = std::make_unique<Functions>();
  if (!functions->LoadAll(library)) {
    return absl::UnavailableError(
        "cuda: the NVRTC library lacks a function: it is older than 12.0");
  }
  Nvrtc nvrtc;
  functions->Version(&nvrtc.major_, &nvrtc.minor_);
  nvrtc.functions_ = functions.release();
  return nvrtc;
}

absl::StatusOr<const Nvrtc*> Nvrtc::Get() {
  // Never unloaded, as it must outlive every compilation of every thread.
  static const absl::StatusOr<Nvrtc>& nvrtc = *new absl::StatusOr<Nvrtc>(Open());
  if (!nvrtc.ok()) return nvrtc.status();
  return &*nvrtc;
}

std::string Nvrtc::version() const { return absl::StrCat(major_, ".", minor_); }

const std::vector<std::string>& Nvrtc::Options() {
  static const auto& options =
      *new std::vector<std::string>{"--std=c++20", "--ptxas-options=-v", "--use_fast_math",
                                    "--device-int128", "--diag-suppress=177"};
  return options;
}

// Without declarations that no kernel here has a use for (textures, the runtime's types): half of a
// short text's time in the front end.
std::vector<std::string> Nvrtc::VersionOptions(int major, int minor) {
  if (major < 12 || (major == 12 && minor < 4)) return {};
  return {"--minimal"};
}

absl::StatusOr<CudaBinary> Nvrtc::Compile(
    const std::string& name, const std::string& source, absl::string_view architecture,
    const std::vector<std::pair<std::string, std::string>>& headers) const {
  std::vector<const char*> header_names, header_texts;
  for (const auto& [header_name, text] : headers) {
    header_names.push_back(header_name.c_str());
    header_texts.push_back(text.c_str());
  }
  Program program = nullptr;
  int result = functions_->CreateProgram(&program, source.c_str(), name.c_str(),
                                         static_cast<int>(headers.size()), header_texts.data(),
                                         header_names.data());
  if (result != 0) {
    return absl::InternalError(
        absl::StrCat("nvrtc: ", name, ": ", functions_->ErrorString(result)));
  }
  const std::string arch_option = absl::StrCat("--gpu-architecture=", architecture);
  const std::vector<std::string> version_options = VersionOptions(major_, minor_);
  std::vector<const char*> options = {arch_option.c_str()};
  for (const std::string& option : Options()) options.push_back(option.c_str());
  for (const std::string& option : version_options) options.push_back(option.c_str());
  result = functions_->CompileProgram(program, static_cast<int>(options.size()), options.data());
  CudaBinary binary;
  binary.log = Fetch(program, functions_->GetLogSize, functions_->GetLog, true);
  if (result == 0) {
    binary.cubin = Fetch(program, functions_->GetCubinSize, functions_->GetCubin, false);
    binary.ptx = Fetch(program, functions_->GetPtxSize, functions_->GetPtx, true);
  }
  functions_->DestroyProgram(&program);
  if (result != 0 || binary.cubin.empty()) {
    return absl::InternalError(absl::StrCat("nvrtc: ", name, " for ", architecture, ": ",
                                            functions_->ErrorString(result), "\n", binary.log));
  }
  return binary;
}

}  // namespace quire
