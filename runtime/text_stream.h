// The text of one continuation as its tokens come: decoded, and ended at a stop string.
#ifndef QUIRE_RUNTIME_TEXT_STREAM_H_
#define QUIRE_RUNTIME_TEXT_STREAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "runtime/stop_scanner.h"
#include "runtime/tokenizer/tokenizer.h"

namespace quire {

class TextStream {
 public:
  // Decoding starts with the prompt, because the first token of a text is decoded otherwise than
  // one in the middle. `tokenizer` must outlive the stream.
  TextStream(const Tokenizer& tokenizer, absl::Span<const int32_t> prompt,
             const std::vector<std::string>& stops)
      : decoder_(tokenizer), scanner_(stops) {
    for (const int32_t id : prompt) decoder_.Push(id);
  }

  std::string Push(int32_t id) { return scanner_.Push(decoder_.Push(id)); }
  bool stopped() const { return scanner_.stopped(); }
  std::string Finish() {
    if (scanner_.stopped()) return "";
    std::string text = scanner_.Push(decoder_.Finish());
    return text + scanner_.Finish();
  }

 private:
  StreamDecoder decoder_;
  StopScanner scanner_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_TEXT_STREAM_H_
