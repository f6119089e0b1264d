#include "tools/run_prompts.h"

#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/file.h"
#include "ir/status.h"
#include "tools/cli.h"
#include "tools/source_states.h"

namespace quire {
namespace {

constexpr char kInputName[] = "standard input";

absl::StatusOr<std::string> ReadStandardInput() {
  std::string text;
  char block[1 << 16];
  while (const size_t count = std::fread(block, 1, sizeof(block), stdin)) text.append(block, count);
  if (std::ferror(stdin) == 0) return text;
  return absl::InvalidArgumentError(absl::StrCat(kInputName, ": cannot be read"));
}

// `name`: for messages.
absl::StatusOr<std::string> ReadText(const std::string& path, const std::string& name,
                                     absl::string_view ids_flag) {
  std::string text;
  if (path == kStandardInput) {
    QUIRE_ASSIGN_OR_RETURN(text, ReadStandardInput());
  } else {
    QUIRE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    text = std::string(file.text());
  }
  const absl::Status valid = CheckUtf8(name, text, ids_flag);
  if (valid.ok()) return text;
  return absl::InvalidArgumentError(valid.message());  // the file is wrong, not the flag
}

// What the user gives for one member of a request: texts, files of them, or ids.
struct Given {
  const char *label, *text_flag, *ids_flag;
  const std::vector<std::string>&texts, &files, &ids;
  std::string Request::*text;
  std::vector<int32_t> Request::*tokens;
};

// `of` with each of them, one request each.
absl::StatusOr<std::vector<Prompt>> Each(const Given& given, const Request& of) {
  std::vector<Prompt> prompts;
  const auto add = [&] {
    prompts.push_back({absl::StrCat(given.label, " ", prompts.size() + 1), of});
    return &prompts.back();
  };
  for (const std::string& text : given.texts) {
    QUIRE_RETURN_IF_ERROR(CheckUtf8(given.text_flag, text, given.ids_flag));
    add()->request.*given.text = text;
  }
  for (const std::string& path : given.files) {
    Prompt* added = add();
    added->label = path == kStandardInput ? kInputName : path;
    QUIRE_ASSIGN_OR_RETURN(added->request.*given.text,
                           ReadText(path, added->label, given.ids_flag));
  }
  for (const std::string& text : given.ids) {
    QUIRE_ASSIGN_OR_RETURN(add()->request.*given.tokens, ParseIds(given.ids_flag, text));
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
  for (const std::string& text : options.stop) {
    QUIRE_RETURN_IF_ERROR(CheckUtf8("--stop", text, ""));
  }
  QUIRE_ASSIGN_OR_RETURN(std::vector<Prompt> prompts,
                         Each({"prompt", "-p", "--ids", options.prompts, options.prompt_files,
                               options.ids, &Request::text, &Request::ids},
                              {}));
  if (!HasSource(options)) return prompts;
  // A prompt beside sources is of all of them.
  return Each({"source", "--source", "--source-ids", options.sources, options.source_files,
               options.source_ids, &Request::source, &Request::source_ids},
              prompts.empty() ? Request() : prompts[0].request);
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
