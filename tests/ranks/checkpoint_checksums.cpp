// A changed byte of a checkpoint is found, wherever it is, and no rank loads anything of it.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/checkpoint_folder.hpp"
#include "shardwise/checkpoint/checksum.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"
#include "unit/checkpoint/texts.hpp"

using namespace shardwise;
using testing::bytes_of;
using testing::check_mentions;
using testing::message_of;
using testing::TemporaryFolder;

namespace {

/// 5 to 8 ranks have no block of some of its features.
struct Mlp : Sequential<ColumnParallelLinear<3, 7>, Relu, RowParallelLinear<7, 5>> {};

template <class Ranks>
using ModelOn = Model<Mlp, Context<float, Reference, Ranks>>;

void save_run(int size, const std::filesystem::path& path, std::uint64_t most = UINT64_MAX) {
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    ModelOn<ThreadCommunicator> model(ranks, Seed{1});
    Optimizer optimizer(model, AdamW{.learning_rate = 0.375});
    float number = 0;
    for (float& moment : optimizer.moments()) moment = number += 0.25F;
    save_checkpoint(path, model, optimizer, {}, {.max_shard_bytes = most});
  });
}

/// All that a load changes or returns.
template <class M, class O>
auto state_of(M& model, O& optimizer, const LoadedCheckpoint& loaded) {
  const auto values = model.values();
  const auto moments = optimizer.moments();
  return std::tuple(std::vector<float>(values.begin(), values.end()),
                    std::vector<float>(moments.begin(), moments.end()), model.step(),
                    model.run().seed.value, optimizer.steps(), optimizer.rule().learning_rate,
                    loaded.position.sampler, loaded.position.loss_scale);
}

/// A byte of a file, and the tensor that has it, or "" for the header.
struct Spot {
  std::filesystem::path file;
  std::size_t byte;
  std::string tensor;
};

/// Of each region of the checkpoint's files its ends and each `step`th byte between.
std::vector<Spot> spots_of(const std::filesystem::path& folder, const TensorFiles& files,
                           std::size_t step) {
  std::vector<Spot> spots;
  const auto add = [&](const std::filesystem::path& file, std::size_t begin, std::size_t end,
                       const std::string& tensor) {
    for (std::size_t i = begin; i < end; ++i) {
      if (i + 1 == end || (i - begin) % step == 0) spots.push_back({file, i, tensor});
    }
  };
  std::map<std::filesystem::path, std::size_t> headers;
  for (const auto& [name, place] : files.tensors()) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (files.name_of_file(place) != "checkpoint " + entry.path().string()) continue;
      const std::size_t begin = files.begin_of(place);
      headers[entry.path()] = begin - place.info.begin;
      add(entry.path(), begin, begin + (place.info.end - place.info.begin), name);
    }
  }
  for (const auto& [file, bytes] : headers) add(file, 0, bytes, "");
  return spots;
}

void change(const Spot& spot, unsigned bit) {
  std::fstream file(spot.file, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(spot.byte));
  const auto byte = static_cast<unsigned>(file.get());
  file.seekp(static_cast<std::streamoff>(spot.byte));
  file.put(static_cast<char>(byte ^ 1U << bit));
}

/// The texts of the ranks' errors are one, but for the rank that threw it.
void check_one_error(const std::vector<std::string>& said) {
  std::set<std::string> texts;
  for (std::string text : said) {
    const std::string of_rank = "rank 0: ";
    texts.insert(text.starts_with(of_rank) ? text.substr(of_rank.size()) : text);
  }
  CHECK(texts.size() == 1);
}

/// Changes each spot in turn and loads at `size` ranks. Returns how many changes were refused.
std::size_t count_refused(int size, const std::filesystem::path& path,
                          const std::vector<Spot>& spots) {
  std::vector<std::string> said(static_cast<std::size_t>(size));
  std::size_t refused = 0;
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    const bool leads = ranks.rank() == 0;
    ModelOn<ThreadCommunicator> whole(ranks, Seed{2});
    Optimizer of_whole(whole, AdamW{});
    const auto loaded = load_checkpoint(path, whole, of_whole);
    const auto right = state_of(whole, of_whole, loaded);
    ModelOn<ThreadCommunicator> model(ranks, Seed{3});
    Optimizer optimizer(model, AdamW{});
    const auto before = state_of(model, optimizer, {});
    for (std::size_t i = 0; i < spots.size(); ++i) {
      const auto bit = static_cast<unsigned>(i % 8);
      if (leads) change(spots[i], bit);
      ranks.barrier();
      auto after = right;
      std::string& text = said[static_cast<std::size_t>(ranks.rank())];
      text = message_of<data_error>([&] {
        ModelOn<ThreadCommunicator> changed(ranks, Seed{2});
        Optimizer of_changed(changed, AdamW{});
        const auto got = load_checkpoint(path, changed, of_changed);
        after = state_of(changed, of_changed, got);
      });
      if (!text.empty() && i % 5 == 0) {  // the model is as it was
        message_of<data_error>([&] { load_checkpoint(path, model, optimizer); });
        CHECK(state_of(model, optimizer, {}) == before);
      }
      CHECK(after == right);  // a change that is not refused has no effect
      ranks.barrier();
      if (leads) {
        CAPTURE(spots[i].file);
        CAPTURE(spots[i].byte);
        check_one_error(said);
        if (!text.empty()) ++refused;
        if (!spots[i].tensor.empty()) {
          check_mentions(text, {spots[i].file.string(), '\'' + spots[i].tensor + '\'',
                                "is not what was saved"});
        }
        change(spots[i], bit);
      }
      ranks.barrier();
    }
  });
  return refused;
}

/// A text that a file has once, replaced by one of the same length.
void replace(const std::filesystem::path& file, const std::string& from, const std::string& to) {
  std::string bytes = bytes_of(file);
  REQUIRE(from.size() == to.size());
  const std::size_t found = bytes.find(from);
  REQUIRE(found != std::string::npos);
  bytes.replace(found, from.size(), to);
  std::ofstream(file, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("a checksum is the two sums, however the bytes are cut") {
  for (const std::size_t size : {0U, 1U, 3U, 4U, 15U, 16U, 17U, 203U}) {
    std::vector<std::byte> bytes(size);
    std::uint64_t sum = 0, weighted = 0;
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<std::byte>(i * 151 + 77);
      const std::uint64_t value = std::to_integer<std::uint64_t>(bytes[i]) << 8 * (i % 4);
      sum += value;
      weighted += i / 4 * value;
    }
    for (std::size_t cut = 0; cut <= size; ++cut) {
      detail::Checksum got;
      got.add(cut, std::span(bytes).subspan(cut));
      got.add(0, std::span(bytes).first(cut));
      CHECK(got.sum == sum);
      CHECK(got.weighted == weighted);
      CHECK(got.bytes == size);
    }
  }
  detail::Checksum known;  // of the words 1 and 2^32 - 1
  known.add(0, std::as_bytes(std::span("\1\0\0\0\xff\xff\xff\xff", 8)));
  CHECK(known.text() == "000000010000000000000000ffffffff");
}

TEST_CASE("each changed byte is refused on all ranks, or has no effect") {
  for (const std::uint64_t most : {UINT64_MAX, std::uint64_t{150}}) {  // one file, and several
    const TemporaryFolder folder("shardwise_checksums");
    const auto path = folder.path() / "model.safetensors";
    save_run(3, path, most);
    const TensorFiles files(path);
    CHECK(files.file_count() == (most == 150 ? 7 : 1));
    for (int size = 1; size <= 8; ++size) {
      CAPTURE(size);
      const auto spots = spots_of(folder.path(), files, size == 1 ? 5 : 83);
      CHECK(spots.size() > 40);
      CHECK(count_refused(size, path, spots) > spots.size() * 9 / 10);
    }
  }
}

TEST_CASE("other digits of the run's numbers are refused") {
  const TemporaryFolder folder("shardwise_digits");
  const auto path = folder.path() / "model.safetensors";
  for (const auto& [from, to] : std::map<std::string, std::string>{
           {"learning_rate\":\"0.375\"", "learning_rate\":\"0.975\""},
           {"shardwise.seed\":\"1\"", "shardwise.seed\":\"2\""},
           {"\"shardwise.checksum\"", "\"shardwise.checksun\""},
           {"\"shardwise.checksums\"", "\"shardwise.checksunz\""},
           {"\"shape\":[7, 3]", "\"shape\":[3, 7]"}}) {
    save_run(2, path);
    replace(path, from, to);
    for (const int size : {1, 3}) {
      run_ranks(size, [&](ThreadCommunicator& ranks) {
        ModelOn<ThreadCommunicator> model(ranks, Seed{1});
        Optimizer optimizer(model, AdamW{});
        check_mentions(message_of<data_error>([&] { load_checkpoint(path, model, optimizer); }),
                       {path.string(), "header is not what was saved", "shardwise.checksums"});
      });
    }
  }
}

TEST_CASE("a file without checksums is loaded, and metadata that were loaded can be saved") {
  const TemporaryFolder folder("shardwise_no_checksums");
  const std::string values(sizeof(float) * (7 * 3 + 7 + 5 * 7 + 5), '\1');
  const auto path =
      folder.write("old.safetensors",
                   testing::file_of('{' + testing::entry("0.weight", "F32", "7,3", "0,84") + ',' +
                                        testing::entry("0.bias", "F32", "7", "84,112") + ',' +
                                        testing::entry("2.weight", "F32", "5,7", "112,252") + ',' +
                                        testing::entry("2.bias", "F32", "5", "252,272") + '}',
                                    values));
  for (const int size : {1, 3, 8}) {
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      ModelOn<ThreadCommunicator> model(ranks, Seed{1});
      const auto metadata = load_weights(path, model);
      CHECK(metadata.empty());
      const auto next = folder.path() / "next.safetensors";
      save_weights(next, model, {.metadata = {{"shardwise.checksums", "stale"}, {"a", "b"}}});
      const std::map<std::string, std::string> kept{{"a", "b"}, {"format", "pt"}};
      CHECK(load_weights(next, model) == kept);
    });
  }
}

TEST_CASE("the newest checkpoint with a changed tensor is passed over with a sentence") {
  for (const std::uint64_t most : {UINT64_MAX, std::uint64_t{150}}) {
    const TemporaryFolder temporary("shardwise_newest_changed");
    std::vector<std::string> told;
    const CheckpointFolder folder(
        temporary.path(),
        {.keep = 9, .tell = [&](const std::string& what) { told.push_back(what); }});
    run_ranks(3, [&](ThreadCommunicator& ranks) {
      ModelOn<ThreadCommunicator> model(ranks, Seed{1});
      Optimizer optimizer(model, AdamW{});
      for (std::uint64_t step = 2; step <= 4; ++step) {
        model.set_step(step);
        folder.save(model, optimizer, {}, {.max_shard_bytes = most});
      }
    });
    const auto damage = [&](std::uint64_t steps) {
      for (const Spot& spot :
           spots_of(temporary.path(), TensorFiles(folder.path_after(steps)), 83)) {
        if (spot.tensor == "2.weight") return change(spot, 3);
      }
    };
    const auto newest = [&](int size) {
      told.clear();
      std::uint64_t step = 0;
      std::vector<std::string> said(static_cast<std::size_t>(size));
      run_ranks(size, [&](ThreadCommunicator& ranks) {
        ModelOn<ThreadCommunicator> model(ranks, Seed{1});
        Optimizer optimizer(model, AdamW{});
        said[static_cast<std::size_t>(ranks.rank())] =
            message_of<data_error>([&] { folder.load_newest(model, optimizer); });
        if (ranks.rank() == 0) step = model.step();
      });
      check_one_error(said);
      if (!said[0].empty()) told.push_back(said[0]);
      return step;
    };
    CHECK(newest(2) == 4);
    damage(3);
    for (const int size : {1, 2, 8}) {
      CHECK(newest(size) == 3);
      REQUIRE(told.size() == 1);
      check_mentions(told[0], {"step-000000003", "'2.weight'", "it is passed over"});
    }
    damage(1);
    damage(2);
    for (const int size : {1, 3}) {
      CHECK(newest(size) == 1);  // as it was
      REQUIRE(told.size() == 4);
      check_mentions(told[3], {"not one of its checkpoints is whole", "step-000000001"});
    }
  }
}
