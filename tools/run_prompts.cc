#include "tools/run_prompts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/file.h"
#include "ir/status.h"
#include "tools/cli.h"
#include "tools/source_states.h"

namespace quire {
namespace {

absl::StatusOr<std::string> ReadText(const std::string& path, absl::string_view ids_flag) {
  QUIRE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const absl::Status text = CheckUtf8(path, file.text(), ids_flag);
  if (text.ok()) return std::string(file.text());
  return absl::InvalidArgumentError(text.message());  // the file is wrong, not the flag
}

// What the encoder reads, one request each; a prompt, if there is one, is of all of them.
absl::StatusOr<std::vector<Prompt>> Sources(const RunOptions& options, const Request& prompt) {
  std::vector<Prompt> prompts;
  const auto add = [&] {
    prompts.push_back({absl::StrCat("source ", prompts.size() + 1), prompt});
    return &prompts.back();
  };
  for (const std::string& text : options.sources) {
    QUIRE_RETURN_IF_ERROR(CheckUtf8("--source", text, "--source-ids"));
    add()->request.source = text;
  }
  for (const std::string& path : options.source_files) {
    Prompt* added = add();
    added->label = path;
    QUIRE_ASSIGN_OR_RETURN(added->request.source, ReadText(path, "--source-ids"));
  }
  for (const std::string& text : options.source_ids) {
    QUIRE_ASSIGN_OR_RETURN(add()->request.source_ids, ParseIds("--source-ids", text));
  }
  return prompts;
}

// Says where the images of a request's states stand, of which each has as many rows.
absl::Status AddImages(const RunOptions& options, int64_t width, Request* request) {
  const auto images = static_cast<int64_t>(options.image_positions.size());
  if (images == 0) return absl::OkStatus();
  const int64_t rows = static_cast<int64_t>(request->source_states->size()) / width;
  if (rows % images != 0) {
    return WithLine(absl::InvalidArgumentError(absl::StrCat(
                        "--image-positions: ", images, " images for ", rows, " rows of states")),
                    "allowed", "as many rows for each image");
  }
  for (const int32_t position : options.image_positions) {
    request->source_images.push_back({position, static_cast<int32_t>(rows / images)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Prompt>> Prompts(const RunOptions& options) {
  std::vector<Prompt> prompts;
  const auto add = [&] {
    prompts.push_back({absl::StrCat("prompt ", prompts.size() + 1), {}});
    return &prompts.back();
  };
  for (const std::string& text : options.stop) {
    QUIRE_RETURN_IF_ERROR(CheckUtf8("--stop", text, ""));
  }
  for (const std::string& text : options.prompts) {
    QUIRE_RETURN_IF_ERROR(CheckUtf8("-p", text, "--ids"));
    add()->request.text = text;
  }
  for (const std::string& path : options.prompt_files) {
    Prompt* added = add();
    added->label = path;
    QUIRE_ASSIGN_OR_RETURN(added->request.text, ReadText(path, "--ids"));
  }
  for (const std::string& text : options.ids) {
    QUIRE_ASSIGN_OR_RETURN(add()->request.ids, ParseIds("--ids", text));
  }
  if (!HasSource(options)) return prompts;
  return Sources(options, prompts.empty() ? Request() : prompts[0].request);
}

absl::Status AddStates(const RunOptions& options, int64_t width, std::vector<Prompt>* prompts) {
  const std::vector<std::string>& files = options.source_states;
  if (files.empty()) return absl::OkStatus();
  for (size_t i = 0; i < prompts->size(); ++i) {
    auto& states = (*prompts)[i].request.source_states;
    if (i >= files.size()) {
      states = (*prompts)[0].request.source_states;
      continue;
    }
    QUIRE_ASSIGN_OR_RETURN(states, ReadSourceStates(files[i], width));
  }
  for (Prompt& prompt : *prompts) QUIRE_RETURN_IF_ERROR(AddImages(options, width, &prompt.request));
  return absl::OkStatus();
}

}  // namespace quire
