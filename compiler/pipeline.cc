#include "compiler/pipeline.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ir/file.h"
#include "ir/file_errors.h"
#include "ir/status.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace quire {
namespace {

absl::Status Dump(const Module& module, const std::string& dir, size_t number,
                  absl::string_view stage) {
  if (dir.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return CannotWrite(dir, "create", error.value());
  const std::string name = absl::StrFormat("%02d-%s.qir", number, std::string(stage));
  return WriteFile(JoinPath(dir, name), Print(module));
}

// INTERNAL with the path of a file that, run as its first line says, shows the failure.
absl::Status BrokenPromise(const PassDef& pass, const std::string& before, absl::string_view what,
                           const PipelineOptions& options) {
  std::error_code error;
  std::filesystem::path dir = options.reproducer_dir;
  if (dir.empty()) dir = options.dump_ir_dir;
  if (dir.empty()) dir = std::filesystem::temp_directory_path(error);
  std::filesystem::create_directories(dir, error);
  const std::filesystem::path path = dir / absl::StrCat("reproduce-", pass.name, ".qir");
  const absl::Status written = WriteFile(
      path.string(),
      absl::StrCat("// RUN: quire compile %s --passes=", pass.name, " --emit=ir\n", before));
  absl::Status status = absl::InternalError(absl::StrCat(pass.name, ": ", what));
  return written.ok() ? WithLine(status, "reproduce", path.string())
                      : WithLine(status, "ir", before);
}

// Runs one pass on `module`, in place; on failure the module is as before.
absl::Status RunOne(const PassDef& pass, Module& module, const Target& target,
                    const PipelineOptions& options, std::vector<PassReport>* reports) {
  const std::string before = Print(module);
  Module edited = module.Clone();
  Notes notes;
  const auto begin = std::chrono::steady_clock::now();
  const absl::StatusOr<bool> changed = pass.run_module != nullptr
                                           ? pass.run_module(edited, target, notes)
                                           : pass.run(*edited.funcs[0], target, notes);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  if (!changed.ok()) {
    if (absl::IsInternal(changed.status())) {
      return BrokenPromise(pass, before, changed.status().message(), options);
    }
    return WithPrefix(changed.status(), pass.name);
  }
  const absl::Status valid = Verify(edited);
  if (!valid.ok()) {
    return BrokenPromise(pass, before, absl::StrCat("left invalid IR: ", valid.message()), options);
  }
  if (*changed != (Print(edited) != before)) {
    return BrokenPromise(pass, before,
                         *changed ? "says that it changed the function, but did not"
                                  : "changed the function, but says that it did not",
                         options);
  }
  module = std::move(edited);
  reports->push_back({pass.name, module.funcs[0]->name(), *changed, taken.count(), notes.list()});
  return absl::OkStatus();
}

// The same on each function, as a module of its own.
absl::Status RunOnEach(const PassDef& pass, Module& module, const Target& target,
                       const PipelineOptions& options, std::vector<PassReport>* reports) {
  for (std::unique_ptr<Func>& func : module.funcs) {
    Module one;
    one.funcs.push_back(std::move(func));
    const absl::Status status = RunOne(pass, one, target, options, reports);
    func = std::move(one.funcs[0]);
    QUIRE_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPasses(Module& module, absl::Span<const PassDef* const> passes,
                       const Target& target, const PipelineOptions& options,
                       std::vector<PassReport>* reports) {
  QUIRE_RETURN_IF_ERROR(Dump(module, options.dump_ir_dir, 0, "input"));
  size_t number = 0;
  for (const PassDef* pass : passes) {
    QUIRE_RETURN_IF_ERROR(pass->run_module != nullptr
                              ? RunOne(*pass, module, target, options, reports)
                              : RunOnEach(*pass, module, target, options, reports));
    QUIRE_RETURN_IF_ERROR(Dump(module, options.dump_ir_dir, ++number, pass->name));
  }
  return absl::OkStatus();
}

std::vector<const PassDef*> DefaultPasses() {
  std::vector<const PassDef*> passes;
  for (const PassDef& pass : AllPasses()) passes.push_back(&pass);
  return passes;
}

std::string ExplainText(absl::Span<const PassReport> reports) {
  std::string text;
  for (const PassReport& report : reports) {
    absl::StrAppendFormat(&text, "%s @%s: %s, %.2f ms\n", report.pass, report.func,
                          report.changed ? "changed" : "unchanged", report.ms);
    for (const PassNote& note : report.notes) {
      absl::StrAppend(&text, "  %", note.value, ": ", note.fired ? "" : "declined: ", note.text,
                      "\n");
    }
  }
  return text;
}

}  // namespace quire
