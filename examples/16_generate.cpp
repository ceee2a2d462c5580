// Continues prompts with a model of Hugging Face: a directory with config.json and the weights in
// model.safetensors, or in several files with an index. The model is a Llama, Mistral, Phi-3,
// Qwen2, Qwen3 or GPT-2; config.json says which.
//
//     weights    each rank reads and keeps those of its heads and of its hidden features
//     keys       each rank keeps those of its heads, of all tokens so far
//     a step     reads the last token of each text, and all ranks choose the same next ones
//
// Prompts and what follows are token ids, since the library has no tokenizer.
// docs/how-to/generate-text.md shows the lines of Python that make ids of a text, and a text of
// ids.
//
// test: --model @PROJECT_SOURCE_DIR@/tests/witness/values/hugging_face/llama -s 3 --ids 1,5,9
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "shardwise/checkpoint/config_file.hpp"
#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/generate/generator.hpp"
#include "shardwise/generate/sampler.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/gpt2_files.hpp"
#include "shardwise/models/last_logits.hpp"
#include "shardwise/models/llama_files.hpp"
#include "shardwise/models/llama_forms.hpp"
#include "shardwise/models/parallelism.hpp"
#include "support/device.hpp"
#include "support/launch.hpp"

namespace sw = shardwise;

namespace {

using Tokens = std::vector<std::int32_t>;

struct Options {
  std::filesystem::path model{};
  int ranks = 1;
  std::vector<std::string> prompts{};
  std::size_t tokens = 32;  // to write behind each prompt
  sw::Sampling sampling{};
  std::string dtype = "float";
  std::string device = "auto";
};

/// The ids of a text such as "1,5,9".
Tokens ids_of(const std::string& text) {
  Tokens ids;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data();; ++at) {
    const auto [behind, error] = std::from_chars(at, end, ids.emplace_back());
    if (error != std::errc() || (behind != end && *behind != ','))
      throw std::runtime_error("--ids " + text + " is no list of token ids; write it like 1,5,9");
    if (behind == end) return ids;
    at = behind;
  }
}

// begin: write
/// Prompts and what was written behind each, and how long that took.
struct Written {
  std::vector<Tokens> texts{};
  ///@{
  /// Of all steps but the first one.
  double steps = 0;
  double tokens = 0;
  double seconds = 0;
  ///@}
};

/// Writes so many tokens behind each prompt. All texts are in one batch.
template <class M>
Written write(M& model, const std::vector<Tokens>& prompts, std::size_t tokens,
              const sw::Sampling& sampling) {
  std::size_t longest = 0;
  for (const Tokens& prompt : prompts) longest = std::max(longest, prompt.size());
  sw::Generator generator(model, {.sequences = prompts.size(), .tokens = longest + tokens},
                          sampling);
  for (const Tokens& prompt : prompts) generator.add(prompt);
  Written written{prompts};
  for (std::size_t ended = 0, step = 0; ended < prompts.size(); ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const auto chosen = generator.step();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    for (const auto& [number, id] : chosen) {
      Tokens& text = written.texts[number];
      text.push_back(id);
      if (text.size() < prompts[number].size() + tokens) continue;
      generator.end(number);
      ++ended;
    }
    if (step == 0) continue;
    written.steps += 1;
    written.tokens += static_cast<double>(chosen.size());
    written.seconds += seconds.count();
  }
  return written;
}
// end: write

/// The bytes of all weights. Each step reads them once, whatever the number of texts; only of a
/// table of tokens or positions that makes no logits it reads a few rows.
template <class M>
double bytes_of(M& model) {
  std::size_t elements = 0;
  model.visit_stored([&](auto& parameter) { elements += parameter.value.global().elements(); });
  return static_cast<double>(elements * sizeof(typename M::dtype));
}

void print(const Written& written, const Options& options, double bytes) {
  for (const Tokens& text : written.texts) {
    const std::size_t prompt = text.size() - options.tokens;
    for (std::size_t i = 0; i < text.size(); ++i)
      std::printf("%s%d", i == 0 ? "" : i == prompt ? "  " : ",", text[i]);
    std::printf("\n");
  }
  if (written.steps == 0) return;
  std::printf("%.1f tokens/s, %.3f GB/s of weights\n", written.tokens / written.seconds,
              written.steps * bytes / written.seconds / 1e9);
}

// begin: run
/// Loads the weights of a network, which are where `tensors` says, and writes.
template <class T, class Net>
void run(example::Ranks& ranks, const Options& options, const std::vector<Tokens>& prompts,
         const Net& with_all_logits, const std::vector<sw::FileTensor>& tensors) {
  example::on_device<T>(options.device, ranks, [&](auto& group, auto& backend) {
    using Group = std::remove_reference_t<decltype(group)>;
    using Backend = std::remove_reference_t<decltype(backend)>;
    const auto net = last_logits(with_all_logits);
    const sw::Shape text{{sw::Axis::batch, sw::dynamic}, {sw::Axis::sequence, sw::dynamic}};
    sw::Model<std::remove_const_t<decltype(net)>, sw::Context<T, Backend, Group>,
              sw::Ends<sw::TensorParallel::ids, sw::TensorParallel::logits>, sw::ForwardOnly>
        model(net, group, sw::Seed{1}, text, backend, {.to_be_loaded = true});
    load_weights(options.model / "model.safetensors", model,
                 {.names = names_in_order(model, tensors),
                  .convert = true,  // files are often in bfloat16
                  .others = sw::transformers_others()});
    const Written written = write(model, prompts, options.tokens, options.sampling);
    if (ranks.rank() == 0) print(written, options, bytes_of(model));
  });
}
// end: run

// begin: family
/// Makes the network that config.json describes, and runs it.
template <class T>
void run_family(example::Ranks& ranks, const Options& options, const std::vector<Tokens>& prompts) {
  const sw::ConfigFile file(options.model);
  const std::string family = file.text("model_type");
  if (family == "gpt2") {
    const auto config = sw::read_gpt2_config(options.model);
    const sw::TensorFiles files(options.model / "model.safetensors");
    const bool has_prefix = files.tensors().contains("transformer.wte.weight");
    run<T>(ranks, options, prompts, sw::gpt2(config),
           gpt2_tensors(config, has_prefix ? "transformer." : ""));
  } else if (family == "llama" || family == "mistral" || family == "phi3" || family == "qwen2" ||
             family == "qwen3") {
    const auto config = sw::read_llama_config(options.model);
    sw::with_llama(config, [&](const auto& net) {
      run<T>(ranks, options, prompts, net, llama_tensors(config));
    });
  } else {
    file.refuse("model_type", "this program has gpt2, llama, mistral, phi3, qwen2 and qwen3");
  }
}
// end: family

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  using Runner = void (*)(example::Ranks&, const Options&, const std::vector<Tokens>&);
  const std::map<std::string, Runner> dtypes{{"float", run_family<float>},
                                             {"bf16", run_family<sw::bf16>}};

  CLI::App app("Continues prompts of token ids with a model of Hugging Face, split over ranks.");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", options.model, "directory of config.json and model.safetensors")
      ->required();
  app.add_option("-s,--split", options.ranks, "over how many ranks");
  app.add_option("--ids", options.prompts, "a prompt, such as 1,5,9; may be given several times")
      ->required();
  app.add_option("--tokens", options.tokens, "to write behind each prompt")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--temperature", options.sampling.temperature,
                 "divides the logits; 0 for the most likely token");
  app.add_option("--top-k", options.sampling.top_k, "of the most likely tokens, 0 for all");
  app.add_option("--top-p", options.sampling.top_p,
                 "of the fewest most likely tokens with this probability");
  app.add_option("--seed", options.sampling.seed.value, "of the random numbers");
  app.add_option("--dtype", options.dtype, "number type of weights and values")
      ->check(CLI::IsMember(dtypes));
  example::add_device_option(app, options.device);
  CLI11_PARSE(app, argc, argv);

  std::vector<Tokens> prompts;
  for (const std::string& prompt : options.prompts) prompts.push_back(ids_of(prompt));
  example::launch(options.ranks, [&](example::Ranks& ranks) {
    dtypes.at(options.dtype)(ranks, options, prompts);
  });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "16_generate: %s\n", e.what());
  return 1;
}
