#include "runtime/request_check.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/sampler.h"
#include "runtime/tokenizer/unicode.h"

namespace quire {
namespace {

absl::Status CheckIds(absl::string_view key, const std::vector<int32_t>& ids, int64_t vocabulary) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "request: ", key, ": ", id, " is not a token\n  allowed: 0 .. ", vocabulary - 1));
  }
  return absl::OkStatus();
}

// Tokens of each sequence that must be in the cache at one time: all beams of a search, which share
// the full pages of the prompt.
int64_t CacheTokens(const RequestLimits& limits, const Request& request) {
  const int64_t shared = static_cast<int64_t>(request.ids.size()) / limits.page_tokens;
  const int64_t pages = limits.cache_tokens / limits.page_tokens;
  if (request.beam.beams == 1 || shared >= pages) return limits.cache_tokens;
  return (shared + (pages - shared) / request.beam.beams) * limits.page_tokens;
}

// Of a request that leaves it open: up to `most`.
absl::Status ChooseMaxTokens(int64_t most, Request* request) {
  const auto prompt_tokens = static_cast<int64_t>(request->ids.size());
  if (request->default_tokens > 0) most = std::min<int64_t>(most, request->default_tokens);
  if (request->max_length > 0) {
    if (prompt_tokens >= request->max_length) {
      return absl::InvalidArgumentError(absl::StrCat(
          "request: a prompt of ", prompt_tokens, " tokens leaves none of max_length=",
          request->max_length, "\n  allowed: prompts of up to ", request->max_length - 1,
          " tokens\n  fix: say how many tokens to generate by max_tokens"));
    }
    most = std::min(most, request->max_length - prompt_tokens);
  }
  request->max_tokens = static_cast<int32_t>(most);
  return absl::OkStatus();
}

absl::Status CheckCount(absl::string_view key, int32_t value, absl::string_view zero) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "request: ", key, "=", value, " is not possible\n  allowed: 0 (", zero, ") or more"));
}

// The last token is chosen but not computed: n tokens after a prompt of p take p + n - 1 places.
absl::Status CheckLength(const RequestLimits& limits, Request* request) {
  const auto prompt_tokens = static_cast<int64_t>(request->ids.size());
  const int64_t positions =
      limits.max_positions > 0 ? limits.max_positions : std::numeric_limits<int64_t>::max();
  const int64_t cache_tokens = CacheTokens(limits, *request);
  const bool is_memory = cache_tokens < positions;
  const int64_t places = std::min(cache_tokens, positions);
  const auto error = [&](absl::string_view what, absl::string_view allowed) {
    const std::string message = absl::StrCat(
        "request: ", what, is_memory ? " does not fit into the KV cache, " : " is too long, ",
        places, is_memory ? " tokens" : " positions are defined", "\n  allowed: ", allowed,
        !is_memory ? ""
        : request->beam.beams > 1
            ? "\n  fix: a larger cache (cache_bytes), fewer beams, or a shorter request"
            : "\n  fix: a larger cache (cache_bytes), or a shorter request");
    return is_memory ? absl::ResourceExhaustedError(message) : absl::InvalidArgumentError(message);
  };
  if (request->beam.beams > 1 && is_memory && prompt_tokens > places &&
      prompt_tokens <= limits.cache_tokens) {
    // Each has a page of its own behind those that they share.
    const int64_t pages = limits.cache_tokens / limits.page_tokens;
    const int64_t beams = std::max<int64_t>(1, pages - prompt_tokens / limits.page_tokens);
    return absl::ResourceExhaustedError(
        absl::StrCat("request: ", request->beam.beams, " beams of a prompt of ", prompt_tokens,
                     " tokens do not fit into the KV cache, ", limits.cache_tokens,
                     " tokens in pages of ", limits.page_tokens, "\n  allowed: beams up to ", beams,
                     "\n  fix: a larger cache (cache_bytes), or fewer beams"));
  }
  if (prompt_tokens > places) {
    return error(absl::StrCat("a prompt of ", prompt_tokens, " tokens"),
                 absl::StrCat("prompts of up to ", places, " tokens"));
  }
  const int64_t most =
      std::min<int64_t>(places - prompt_tokens + 1, std::numeric_limits<int32_t>::max());
  if (request->max_tokens > most) {
    return error(absl::StrCat("max_tokens=", request->max_tokens, " after a prompt of ",
                              prompt_tokens, " tokens"),
                 absl::StrCat("max_tokens up to ", most, " after this prompt"));
  }
  return request->max_tokens > 0 ? absl::OkStatus() : ChooseMaxTokens(most, request);
}

absl::Status CheckImages(const Request& request, int64_t states) {
  const auto bad = [](absl::string_view what, absl::string_view allowed) {
    return absl::InvalidArgumentError(absl::StrCat("request: ", what, "\n  allowed: ", allowed));
  };
  int64_t rows = 0, last = -1;
  for (const SourceImage& image : request.source_images) {
    if (image.rows < 1) return bad(absl::StrCat("an image of ", image.rows, " rows"), "1 or more");
    rows += image.rows;
    const auto prompt = static_cast<int64_t>(request.ids.size());
    if (image.position <= last || image.position >= prompt) {
      return bad(absl::StrCat("an image at position ", image.position),
                 absl::StrCat(last + 1, " .. ", prompt - 1,
                              ", in the prompt and behind the image before it"));
    }
    last = image.position;
  }
  if (request.source_images.empty() || rows == states) return absl::OkStatus();
  return bad(absl::StrCat("images of ", rows, " rows for ", states, " rows of states"),
             "images that have all rows, or none");
}

absl::Status CheckStates(const RequestLimits& limits, const Request& request) {
  if (request.source_states == nullptr) {
    if (request.source_images.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("request: images without states\n  fix: give source_states");
  }
  if (limits.states_width == 0) {
    return absl::InvalidArgumentError(
        limits.has_encoder
            ? "request: states for an encoder that reads tokens\n  fix: give a source"
            : "request: states need a model that looks at states");
  }
  const auto count = static_cast<int64_t>(request.source_states->size());
  if (count == 0 || count % limits.states_width != 0) {
    return absl::InvalidArgumentError(absl::StrCat("request: ", count, " numbers of states",
                                                   "\n  allowed: rows of ", limits.states_width));
  }
  return CheckImages(request, count / limits.states_width);
}

absl::Status CheckSource(const RequestLimits& limits, const Request& request) {
  QUIRE_RETURN_IF_ERROR(CheckStates(limits, request));
  if (limits.states_width > 0 && !request.source_ids.empty()) {
    return absl::InvalidArgumentError(
        "request: a source of tokens for an encoder that reads states\n  fix: give source_states");
  }
  const EncoderInput input = request.encoder_input(limits.states_width);
  const int64_t tokens = input.tokens();
  if (limits.states_width > 0 && tokens == 0) return absl::OkStatus();
  if (!limits.has_encoder) {
    if (tokens == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "request: a source needs a model with an encoder\n  fix: give it as the prompt");
  }
  if (tokens == 0) {
    return absl::InvalidArgumentError(
        "request: the source is empty\n  allowed: a token or more for the encoder\n  fix: give a "
        "source");
  }
  QUIRE_RETURN_IF_ERROR(CheckIds("source", request.source_ids, limits.vocabulary));
  if (limits.max_source > 0 && tokens > limits.max_source) {
    return absl::InvalidArgumentError(absl::StrCat(
        "request: a source of ", tokens, " tokens is too long, ", limits.max_source,
        " positions are defined\n  allowed: sources of up to ", limits.max_source, " tokens"));
  }
  int64_t used = 0;  // whole pages of every run
  for (const int64_t run : input.Runs()) {
    used += (run + limits.page_tokens - 1) / limits.page_tokens * limits.page_tokens;
  }
  if (used <= limits.encoder_tokens) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "request: a source of ", tokens, " tokens does not fit into the encoder cache, ",
      limits.encoder_tokens, " tokens\n  allowed: sources of up to ", limits.encoder_tokens,
      " tokens\n  fix: a larger cache (cache_bytes), or a shorter source"));
}

absl::Status CheckBeams(const RequestLimits& limits, const Request& request) {
  const auto bad = [](absl::string_view what, absl::string_view allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat("request: ", what, " is not possible\n  allowed: ", allowed));
  };
  const BeamParams& beam = request.beam;
  if (beam.beams < 1 || beam.beams > limits.max_sequences) {
    return bad(absl::StrCat("beams=", beam.beams),
               absl::StrCat("1 .. ", limits.max_sequences, " (max_sequences)"));
  }
  if (!(beam.length_penalty >= -100 && beam.length_penalty <= 100)) {
    return bad(absl::StrCat("length_penalty=", beam.length_penalty), "-100 .. 100");
  }
  if (beam.beams == 1) return absl::OkStatus();
  if (request.samples > beam.beams) {
    return bad(absl::StrCat("samples=", request.samples, " of ", beam.beams, " beams"),
               absl::StrCat("1 .. ", beam.beams));
  }
  if (!request.stop.empty()) return bad("a stop string for beams", "stop_ids");
  const SamplingParams& sampling = request.sampling;
  if (sampling.presence_penalty != 0 || sampling.frequency_penalty != 0) {
    return bad("a presence or frequency penalty for beams", "repetition_penalty");
  }
  if (sampling.logprobs || sampling.top_logprobs > 0) {
    return bad("logprobs of beams", "none, a beam has a score");
  }
  if (sampling.temperature == 0) return absl::OkStatus();
  return bad(absl::StrCat("temperature=", sampling.temperature, " for beams"),
             "0, beams are not drawn");
}

}  // namespace

absl::Status CheckRequest(const RequestLimits& limits, Request* request) {
  QUIRE_RETURN_IF_ERROR(CheckSource(limits, *request));
  if (request->ids.empty() && limits.has_encoder && limits.states_width == 0) {
    return absl::InvalidArgumentError(
        "request: the prompt is empty, and the model has neither decoder_start_token_id nor "
        "bos_token_id, which would begin it\n  allowed: a token or more\n  fix: a text or ids that "
        "the output begins with (quire run: -p, --ids)");
  }
  if (request->ids.empty()) {
    return absl::InvalidArgumentError(
        "request: the prompt is empty\n  allowed: a token or more\n  fix: a text, or as ids the "
        "token that texts of the model begin with");
  }
  QUIRE_RETURN_IF_ERROR(CheckIds("prompt", request->ids, limits.vocabulary + limits.more_ids));
  QUIRE_RETURN_IF_ERROR(CheckIds("stop_ids", request->stop_ids, limits.vocabulary));
  QUIRE_RETURN_IF_ERROR(CheckSampling(request->sampling, limits.vocabulary));
  if (request->samples < 1 || request->samples > limits.max_sequences) {
    return absl::InvalidArgumentError(absl::StrCat("request: samples=", request->samples,
                                                   " is not possible\n  allowed: 1 .. ",
                                                   limits.max_sequences, " (max_sequences)"));
  }
  QUIRE_RETURN_IF_ERROR(CheckBeams(limits, *request));
  QUIRE_RETURN_IF_ERROR(CheckCount("max_tokens", request->max_tokens, "as many as fit"));
  QUIRE_RETURN_IF_ERROR(CheckCount("default_tokens", request->default_tokens, "any"));
  QUIRE_RETURN_IF_ERROR(CheckCount("max_length", request->max_length, "any"));
  if (!(request->timeout_s >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("request: timeout_s=", request->timeout_s,
                     " is not possible\n  allowed: 0 (none) or more"));
  }
  if (!request->stop.empty() && !limits.has_tokenizer) {
    return absl::InvalidArgumentError(
        "request: stop strings need a tokenizer, and the plan has none\n  fix: stop_ids");
  }
  for (const std::string& stop : request->stop) {
    if (stop.empty() || tokenizer::ValidUtf8Prefix(stop) != stop.size()) {
      return absl::InvalidArgumentError(
          "request: a stop string is empty or not UTF-8\n  allowed: UTF-8 text");
    }
  }
  return CheckLength(limits, request);
}

}  // namespace quire
