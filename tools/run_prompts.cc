#include "tools/run_prompts.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/file.h"
#include "ir/file_errors.h"
#include "ir/status.h"
#include "tools/cli.h"
#include "tools/source_states.h"

namespace quire {
namespace {

constexpr char kInputName[] = "standard input";
// More than a prompt of any model is. What is read is held, and tokenised, whole.
constexpr size_t kMostTextBytes = size_t{64} << 20;

// What a pipe or a terminal gives, and no more when that is too much.
absl::Status ReadStream(int file, const std::string& name, std::string* text) {
  char block[1 << 16];
  for (;;) {
    const ssize_t count = read(file, block, sizeof(block));
    if (count == 0) return absl::OkStatus();
    if (count > 0) {
      text->append(block, static_cast<size_t>(count));
      if (text->size() > kMostTextBytes) return absl::OkStatus();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd wanted = {file, POLLIN, 0};
      poll(&wanted, 1, -1);
    } else if (errno != EINTR) {
      return WithLine(absl::InvalidArgumentError(absl::StrCat(
                          name, ": cannot be read: ", std::generic_category().message(errno))),
                      "fix", "text from a file or a pipe");
    }
  }
}

// A regular file; or what streams.
absl::Status ReadAny(const std::string& path, const std::string& name, std::string* text) {
  if (path == kStandardInput) return ReadStream(STDIN_FILENO, name, text);
  struct stat about;
  if (stat(path.c_str(), &about) == 0 && (S_ISFIFO(about.st_mode) || S_ISCHR(about.st_mode))) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return CannotRead(path, errno);
    const absl::Status status = ReadStream(file, name, text);
    close(file);
    return status;
  }
  QUIRE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  *text = std::string(file.text().substr(0, kMostTextBytes + 1));
  return absl::OkStatus();
}

// Without the end of its last line, which editors and echo add. `name`: for messages.
absl::StatusOr<std::string> ReadText(const std::string& path, const std::string& name,
                                     absl::string_view ids_flag) {
  std::string text;
  QUIRE_RETURN_IF_ERROR(ReadAny(path, name, &text));
  if (text.size() > kMostTextBytes) {
    return WithLine(absl::InvalidArgumentError(absl::StrCat(name, ": is too long for a prompt")),
                    "allowed", absl::StrCat("texts of up to ", kMostTextBytes, " bytes"));
  }
  const absl::Status valid = CheckUtf8(name, text, ids_flag);
  if (!valid.ok()) return absl::InvalidArgumentError(valid.message());  // not the flag is wrong
  absl::string_view whole = text;
  if (absl::ConsumeSuffix(&whole, "\n")) absl::ConsumeSuffix(&whole, "\r");
  return std::string(whole);
}

// A member of a request that is given as texts, files of them, or ids.
struct Member {
  const char* label;
  const char* const* flags;  // of each kind
  std::string Request::* text;
  std::vector<int32_t> Request::* ids;
};

absl::Status Fill(const Member& member, const GivenText& given, Prompt* prompt) {
  const char* const ids_flag = member.flags[GivenText::kIds];
  if (given.kind == GivenText::kIds) {
    QUIRE_ASSIGN_OR_RETURN(prompt->request.*member.ids, ParseIds(ids_flag, given.value));
    return absl::OkStatus();
  }
  std::string& text = prompt->request.*member.text;
  if (given.kind == GivenText::kText) {
    text = given.value;
    return CheckUtf8(member.flags[given.kind], text, ids_flag);
  }
  prompt->label = given.value == kStandardInput ? kInputName : given.value;
  QUIRE_ASSIGN_OR_RETURN(text, ReadText(given.value, prompt->label, ids_flag));
  return absl::OkStatus();
}

// `of` with each of `given`, one request each.
absl::StatusOr<std::vector<Prompt>> Each(const Member& member, const std::vector<GivenText>& given,
                                         const Request& of) {
  std::vector<Prompt> prompts;
  for (const GivenText& one : given) {
    prompts.push_back({absl::StrCat(member.label, " ", prompts.size() + 1), of});
    QUIRE_RETURN_IF_ERROR(Fill(member, one, &prompts.back()));
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
  QUIRE_ASSIGN_OR_RETURN(
      std::vector<Prompt> prompts,
      Each({"prompt", kPromptFlags, &Request::text, &Request::ids}, options.prompts, {}));
  if (options.sources.empty()) return prompts;
  // A prompt beside sources is of all of them.
  return Each({"source", kSourceFlags, &Request::source, &Request::source_ids}, options.sources,
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
