// What goes wrong with a checkpoint: the error is there on every rank, the old file is whole, and
// the model is as it was.

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/sgd.hpp"
#include "support/full_disk.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"
#include "unit/checkpoint/texts.hpp"

using namespace shardwise;
using testing::bytes_of;
using testing::check_mentions;
using testing::entry;
using testing::file_of;
using testing::message_of;
using testing::TemporaryFolder;

namespace {

struct Mlp : Sequential<ColumnParallelLinear<6, 10>, Relu, RowParallelLinear<10, 4>> {};
struct Wider : Sequential<ColumnParallelLinear<6, 12>, Relu, RowParallelLinear<12, 4, false>, Relu,
                          Linear<split::none, 4, 4>> {};

template <class A, class T = float>
using ModelOf = Model<A, Context<T, Reference, ThreadCommunicator>>;

/// All that a load changes.
struct State {
  std::vector<float> values;
  std::vector<float> moments;
  std::uint64_t step = 0, seed = 0, steps = 0;
  double rate = 0;

  friend bool operator==(const State&, const State&) = default;
};

template <class M, class O>
State state_of(M& model, O& optimizer) {
  State state{{},
              {},
              model.step(),
              model.run().seed.value,
              optimizer.steps(),
              optimizer.rule().learning_rate};
  const auto values = model.values();
  state.values.assign(values.begin(), values.end());
  const auto moments = optimizer.moments();
  state.moments.assign(moments.begin(), moments.end());
  return state;
}

void save_run(int size, const std::filesystem::path& path) {
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    ModelOf<Mlp> model(ranks, Seed{1});
    Optimizer optimizer(model, AdamW{});
    save_checkpoint(path, model, optimizer, {});
  });
}

/// What a load of `path` says on each of `size` ranks, all of which must throw and be as before.
template <class A = Mlp, class Rule = AdamW>
std::vector<std::string> refusals(int size, const std::filesystem::path& path,
                                  const Rule& rule = {}, const LoadOptions& options = {}) {
  std::vector<std::string> said(static_cast<std::size_t>(size));
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    ModelOf<A> model(ranks, Seed{2});
    Optimizer optimizer(model, rule);
    model.set_step(5);
    const State before = state_of(model, optimizer);
    said[static_cast<std::size_t>(ranks.rank())] =
        message_of<data_error>([&] { load_checkpoint(path, model, optimizer, options); });
    CHECK(state_of(model, optimizer) == before);
  });
  for (const std::string& text : said) CHECK(text != "");
  return said;
}

/// A file with the tensors of `Mlp`'s run, or some of them, and any metadata.
void write_parts_of_run(const std::filesystem::path& path, bool parameters, bool moments,
                        const std::map<std::string, std::string>& changed) {
  SingleRank alone;
  Model<Mlp, Context<float, Reference, SingleRank>> model(alone, Seed{1});
  Optimizer optimizer(model, AdamW{});
  std::vector<TensorPart> parts;
  if (parameters) parts = detail::model_parts(model, {}, detail::Passing::first);
  if (moments) {
    for (const TensorPart& part :
         detail::moment_parts(model.run(), optimizer, {}, detail::Passing::first))
      parts.push_back(part);
  }
  SaveOptions options;
  options.metadata = changed;
  for (const auto& [key, text] :
       std::map<std::string, std::string>{{"shardwise.step", "3"},
                                          {"shardwise.seed", "1"},
                                          {"shardwise.optimizer", "AdamW, 2 moments"},
                                          {"shardwise.optimizer.steps", "2"},
                                          {"shardwise.optimizer.learning_rate", "0.5"},
                                          {"shardwise.sampler.seed", "1"},
                                          {"shardwise.sampler.epoch", "0"},
                                          {"shardwise.sampler.position", "0"},
                                          {"shardwise.loss_scale", "1"},
                                          {"shardwise.loss_scale.in_a_row", "0"},
                                          {"shardwise.loss_scale.skipped", "0"}}) {
    options.metadata.emplace(key, text);
  }
  save_parts(path, alone, parts, options);
}

/// What a save to `path` says on each of `size` ranks; `prepare(ranks)` runs before it.
template <class Prepare>
std::vector<std::string> failed_saves(int size, const std::filesystem::path& path,
                                      const SaveOptions& options, Prepare&& prepare) {
  std::vector<std::string> said(static_cast<std::size_t>(size));
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    ModelOf<Mlp> model(ranks, Seed{7});
    prepare(ranks);
    said[static_cast<std::size_t>(ranks.rank())] =
        message_of<data_error>([&] { save_weights(path, model, options); });
  });
  for (const std::string& text : said) CHECK(text != "");
  return said;
}

const auto nothing = [](ThreadCommunicator&) {};

}  // namespace

TEST_CASE("a full disk leaves the old checkpoint whole") {
  const TemporaryFolder folder("shardwise_full");
  const auto path = folder.path() / "model.safetensors";
  for (const int size : {1, 3}) {
    save_run(2, path);
    const std::string old = bytes_of(path);
    for (const std::uint64_t most : {UINT64_MAX, std::uint64_t{200}}) {  // one file, and several
      for (const rlim_t room :
           {rlim_t{0}, rlim_t{100}, rlim_t{300}}) {  // for nothing, not the header, not the data
        CAPTURE(room);
        const auto said = [&] {
          const testing::FullDisk full(room);
          return failed_saves(size, path, {.max_shard_bytes = most}, nothing);
        }();
        for (const std::string& text : said) check_mentions(text, {"model", "too large"});
        CHECK(bytes_of(path) == old);
        CHECK(folder.names() == std::vector<std::string>{"model.safetensors"});
      }
    }
  }
}

TEST_CASE("a full disk leaves an old checkpoint in several files whole") {
  const TemporaryFolder folder("shardwise_full_shards");
  const auto path = folder.path() / "model.safetensors";
  const SaveOptions split{.max_shard_bytes = 200};
  for (int generation = 0; generation < 3; ++generation) {
    run_ranks(2, [&](ThreadCommunicator& ranks) {
      ModelOf<Mlp> model(ranks, Seed{std::uint64_t(generation)});
      save_weights(path, model, split);
    });
    const auto names = folder.names();
    CHECK(names.size() == 4);
    std::vector<std::string> old;
    for (const std::string& name : names) old.push_back(bytes_of(folder.path() / name));
    {
      const testing::FullDisk full(300);
      failed_saves(3, path, split, nothing);
    }
    CHECK(folder.names() == names);
    for (std::size_t i = 0; i < names.size(); ++i) {
      CHECK(bytes_of(folder.path() / names[i]) == old[i]);
    }
  }
}

TEST_CASE("a save removes what was its own, and nothing else") {
  const TemporaryFolder folder("shardwise_not_ours");
  const auto path = folder.path() / "model.safetensors";
  for (const char* name : {"model-00001-of-00001.safetensors", "model-x.safetensors",
                           "other-a-00001-of-00001.safetensors"}) {
    folder.write(name, "theirs");
  }
  for (const std::string index : {R"({"weight_map":{"a":"model-00001-of-00001.safetensors",)"
                                  R"("b":"model-x.safetensors",)"
                                  R"("c":"other-a-00001-of-00001.safetensors"}})",
                                  "no index"}) {
    folder.write("model.safetensors.index.json", index);
    folder.write("model.safetensors.saving", "left by a save that was killed");
    save_run(2, path);
    CHECK(folder.names() == std::vector<std::string>{"model-00001-of-00001.safetensors",
                                                     "model-x.safetensors", "model.safetensors",
                                                     "other-a-00001-of-00001.safetensors"});
  }
}

TEST_CASE("files in the way, and folders that are not there") {
  const TemporaryFolder folder("shardwise_in_the_way");
  for (const std::string& text :
       failed_saves(3, folder.path() / "none" / "model.safetensors", {}, nothing)) {
    check_mentions(text, {"none", "No such file"});
  }
  // The last step of a save fails: the name is that of a folder.
  const auto path = folder.path() / "model.safetensors";
  std::filesystem::create_directories(path / "inside");
  for (const std::string& text : failed_saves(3, path, {}, nothing)) {
    check_mentions(text, {"cannot be put in its place"});
  }
  CHECK(folder.names() == std::vector<std::string>{"model.safetensors"});
  std::filesystem::create_directories(detail::index_path(path) / "inside");
  failed_saves(2, path, {.max_shard_bytes = 1}, nothing);
  CHECK(folder.names() ==
        std::vector<std::string>{"model.safetensors", "model.safetensors.index.json"});
}

TEST_CASE("a rank that cannot write stops them all, before anything has changed") {
  const TemporaryFolder folder("shardwise_one_rank");
  const std::filesystem::path home = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  save_run(2, "model.safetensors");
  const std::string old = bytes_of("model.safetensors");
  for (const int culprit : {1, 2}) {
    // A rank in another folder: what the others create, it does not find.
    const auto said = failed_saves(3, "model.safetensors", {}, [&](ThreadCommunicator& ranks) {
      if (ranks.rank() != culprit) return;
      REQUIRE(::unshare(CLONE_FS) == 0);
      REQUIRE(::chdir("/") == 0);
    });
    for (int rank = 0; rank < 3; ++rank) {
      const std::string& text = said[static_cast<std::size_t>(rank)];
      check_mentions(text, {"model.safetensors.saving", "No such file"});
      CHECK((text.find("rank " + std::to_string(culprit)) == std::string::npos) ==
            (rank == culprit));
    }
    CHECK(bytes_of("model.safetensors") == old);
    CHECK(folder.names() == std::vector<std::string>{"model.safetensors"});
  }
  std::filesystem::create_directory("other");
  save_run(1, "other/model.safetensors");
  std::filesystem::current_path("other");
  {
    SingleRank alone;
    Model<Mlp, Context<float, Reference, SingleRank>> model(alone, Seed{3});
    save_weights("model.safetensors", model);
  }
  std::filesystem::current_path("..");
  std::atomic<int> differ = 0;
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    ModelOf<Mlp> model(ranks, Seed{2});
    if (ranks.rank() == 1) {
      REQUIRE(::unshare(CLONE_FS) == 0);
      REQUIRE(::chdir("other") == 0);
    }
    const auto text = message_of<data_error>([&] { load_weights("model.safetensors", model); });
    if (text.find("do not see the same file") != std::string::npos) ++differ;
  });
  CHECK(differ == 2);
  std::filesystem::current_path(home);
}

TEST_CASE("two programs that save to one name wait for each other") {
  for (const std::uint64_t most : {UINT64_MAX, std::uint64_t{200}}) {  // one file, and several
    const TemporaryFolder folder("shardwise_two_programs");
    const auto path = folder.path() / "model.safetensors";
    std::vector<pid_t> programs;
    for (const std::uint64_t seed : {3U, 4U}) {
      programs.push_back(::fork());
      REQUIRE(programs.back() >= 0);
      if (programs.back() > 0) continue;
      int failed = 0;
      try {
        run_ranks(2, [&](ThreadCommunicator& ranks) {
          ModelOf<Mlp> model(ranks, Seed{seed});
          for (int i = 0; i < 20; ++i) save_weights(path, model, {.max_shard_bytes = most});
        });
      } catch (const std::exception&) {
        failed = 1;
      }
      ::_exit(failed);
    }
    for (const pid_t program : programs) {
      int status = -1;
      REQUIRE(::waitpid(program, &status, 0) == program);
      CHECK(status == 0);
    }
    run_ranks(3, [&](ThreadCommunicator& ranks) {
      ModelOf<Mlp> loaded(ranks, Seed{1}), one(ranks, Seed{3}), other(ranks, Seed{4});
      load_weights(path, loaded);
      const auto is = [&](auto& model) {
        return std::equal(loaded.values().begin(), loaded.values().end(), model.values().begin());
      };
      CHECK(std::int32_t(is(one)) + std::int32_t(is(other)) >= 1);
    });
    CHECK(folder.names().size() == (most == 200 ? 4 : 1));
  }
}

TEST_CASE("ranks that do not save the same") {
  const TemporaryFolder folder("shardwise_not_the_same");
  const auto path = folder.path() / "model.safetensors";
  std::atomic<int> refused = 0;
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    ModelOf<Mlp> model(ranks, Seed{7});
    try {
      save_weights(path, model, {.metadata = {{"rank", std::to_string(ranks.rank())}}});
    } catch (const argument_error& e) {
      check_mentions(e.what(), {"rank 1 saves model.safetensors with other"});
      ++refused;
    }
    // Rank 2 has left out a save, so its next one is of another file.
    const auto text = message_of<argument_error>([&] {
      save_weights(folder.path() / (ranks.rank() == 2 ? "b.safetensors" : "a.safetensors"), model);
    });
    check_mentions(text, {"rank 0 saves a.safetensors, rank 2 saves b.safetensors"});
    CHECK_THROWS_AS(save_weights(folder.path() / "model.bin", model), argument_error);
    CHECK_THROWS_AS(save_weights(folder.path() / ".safetensors", model), argument_error);
    CHECK_THROWS_AS(save_weights(path, model, {.names = {{"1.weight", "x"}}}), argument_error);
    CHECK_THROWS_AS(save_weights(path, model, {.names = {{"0.weight", "2.weight"}}}),
                    argument_error);
    CHECK_THROWS_AS(
        save_weights(path, model, {.names = {{"0.weight", "2.weight"}}, .max_shard_bytes = 1}),
        argument_error);
    CHECK_THROWS_AS(save_weights(path, model, {.names = {{"0.weight", "__metadata__"}}}),
                    argument_error);
    CHECK_THROWS_AS(save_weights(path, model, {.names = {{"0.weight", "\xff"}}}), argument_error);
    CHECK_THROWS_AS(load_weights(path, model, {.names = {{"1.weight", "x"}}}), argument_error);
    ModelOf<Mlp> other(ranks, Seed{7});
    Optimizer of_other(other, AdamW{});
    CHECK_THROWS_AS(save_checkpoint(path, model, of_other, {}), argument_error);
    CHECK_THROWS_AS(load_checkpoint(path, model, of_other), argument_error);
  });
  CHECK(refused == 3);
  CHECK(folder.names().empty());
}

TEST_CASE("damaged files change nothing") {
  const TemporaryFolder folder("shardwise_damaged");
  const auto path = folder.path() / "model.safetensors";
  save_run(2, path);
  const std::string whole = bytes_of(path);
  folder.write("model.safetensors", whole.substr(0, whole.size() - 1));
  for (const auto& text : refusals(3, path)) check_mentions(text, {"cut short"});
  folder.write("model.safetensors", "x");
  for (const auto& text : refusals(3, path)) check_mentions(text, {"has 1 bytes"});
  std::filesystem::remove(path);
  for (const auto& text : refusals(3, path)) check_mentions(text, {"No such file"});
}

TEST_CASE("a rank that cannot read its part leaves all models as they were") {
  const TemporaryFolder folder("shardwise_one_reader");
  const std::filesystem::path home = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  save_run(2, "model.safetensors");
  std::atomic<int> unchanged = 0;
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    ModelOf<Mlp> model(ranks, Seed{2});
    Optimizer optimizer(model, AdamW{});
    const State before = state_of(model, optimizer);
    const TensorFiles files = open_checkpoint("model.safetensors", ranks);
    if (ranks.rank() == 1) {
      REQUIRE(::unshare(CLONE_FS) == 0);
      REQUIRE(::chdir("/") == 0);
    }
    const auto text = message_of<data_error>([&] {
      load_parts(files, ranks, detail::model_parts(model, {}, detail::Passing::each), {},
                 detail::is_of_optimizer);
    });
    check_mentions(text, {"No such file"});
    if (state_of(model, optimizer) == before) ++unchanged;
  });
  CHECK(unchanged == 3);
  std::filesystem::current_path(home);
}

TEST_CASE("a checkpoint of another architecture says all that does not fit") {
  const TemporaryFolder folder("shardwise_architecture");
  const auto path = folder.path() / "model.safetensors";
  save_run(2, path);
  for (const int size : {1, 3}) {
    for (const auto& text : refusals<Wider>(size, path)) {
      check_mentions(
          text, {"is not of this model", "missing: '4.weight', '4.bias'",
                 "'0.weight' is [10, 6] in the file and [12, 6] here", "'0.bias' is [10]",
                 "'2.weight' is [4, 10]", "unexpected: '2.bias'", "optimizer.4.weight.moment0"});
    }
  }
  for (const auto& text : refusals(2, path, AdamW{}, {.names = {{"0.weight", "fc1.weight"}}})) {
    check_mentions(text, {"missing: 'fc1.weight'", "unexpected: '0.weight'"});
  }
}

TEST_CASE(
    "the count of batches of PyTorch's batch normalisation is passed over, and no other name") {
  const TemporaryFolder folder("shardwise_counts");
  const auto path = folder.path() / "model.safetensors";
  for (const bool is_count : {true, false}) {
    run_ranks(2, [&](ThreadCommunicator& ranks) {
      ModelOf<Mlp> model(ranks, Seed{7});
      Tensor<std::int64_t, Invariant> count(Shape{}, place_of(ranks));
      const std::string name = is_count ? "bn1.num_batches_tracked" : "num_batches_tracked_not";
      save_weights(path, model, {.own = {part_of(name, count.view())}});
      ModelOf<Mlp> other(ranks, Seed{8});
      if (is_count) {
        load_weights(path, other);
        CHECK(std::ranges::equal(other.values(), model.values()));
      } else {
        const auto text = message_of<data_error>([&] { load_weights(path, other); });
        check_mentions(text, {"unexpected: 'num_batches_tracked_not'"});
      }
    });
  }
}

TEST_CASE("another dtype is an error, or converted when asked for") {
  const TemporaryFolder folder("shardwise_dtype");
  const auto path = folder.path() / "model.safetensors";
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    ModelOf<Mlp, double> wide(ranks, Seed{7});
    save_weights(path, wide);
    ModelOf<Mlp> model(ranks, Seed{8});
    const auto text = message_of<data_error>([&] { load_weights(path, model); });
    check_mentions(text, {"'0.weight' is F64 in the file and F32 here", "LoadOptions::convert"});
    CHECK(model.gather("0.weight")[3] != static_cast<float>(wide.gather("0.weight")[3]));
    load_weights(path, model, {.convert = true});
    for (const char* name : {"0.weight", "0.bias", "2.weight", "2.bias"}) {
      const auto exact = wide.gather(name);
      const auto got = model.gather(name);
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == static_cast<float>(exact[i]));
    }
  });
  folder.write(
      "integers.safetensors",
      file_of("{" + entry("0.weight", "I32", "10,6", "0,240") + "}", std::string(240, 'x')));
  run_ranks(1, [&](ThreadCommunicator& ranks) {
    ModelOf<Mlp> model(ranks, Seed{8});
    const auto text = message_of<data_error>(
        [&] { load_weights(folder.path() / "integers.safetensors", model, {.convert = true}); });
    check_mentions(text, {"'0.weight' is I32 in the file and F32 here"});
    CHECK(text.find("LoadOptions") == std::string::npos);
  });
}

TEST_CASE("runs that are none, or another optimizer's") {
  const TemporaryFolder folder("shardwise_runs");
  const auto path = folder.path() / "run.safetensors";
  using Rows = std::vector<std::pair<std::map<std::string, std::string>, std::string>>;
  for (const auto& row : Rows{
           {{{"shardwise.step", "x"}}, "'x' as shardwise.step"},
           {{{"shardwise.step", ""}}, "shardwise.step"},
           {{{"shardwise.step", "-1"}}, "shardwise.step"},
           {{{"shardwise.step", "1.5"}}, "shardwise.step"},
           {{{"shardwise.step", "0"}}, "those of no run"},
           {{{"shardwise.step", "4294967296"}}, "those of no run"},
           {{{"shardwise.seed", "18446744073709551616"}}, "shardwise.seed"},
           {{{"shardwise.optimizer.learning_rate", "nan"}}, "'nan' as"},
           {{{"shardwise.optimizer.learning_rate", "-1"}}, "those of no run"},
           {{{"shardwise.optimizer.steps", "18446744073709551615"}}, "those of no run"},
           {{{"shardwise.optimizer.learning_rate", "1e999"}}, "learning_rate"},
           {{{"shardwise.sampler.epoch", "4294967296"}}, "those of no run"},
           {{{"shardwise.loss_scale", "0"}}, "the loss scale is 0"},
           {{{"shardwise.loss_scale", "1e300"}}, "those of no run"},
           {{{"shardwise.loss_scale.skipped", "1.5"}}, "loss_scale.skipped"},
           {{{"shardwise.optimizer", "Sgd, 1 moments"}}, "another optimizer (Sgd, 1 moments)"},
       }) {
    CAPTURE(row.second);
    write_parts_of_run(path, true, true, row.first);
    for (const auto& text : refusals(2, path)) check_mentions(text, {row.second});
  }
  write_parts_of_run(path, true, true, {});
  for (const auto& text : refusals(2, path, Sgd{.momentum = 0.9})) {
    check_mentions(text, {"another optimizer (AdamW, 2 moments) than is here (Sgd, 1 moments)"});
  }
  write_parts_of_run(path, true, false, {});
  for (const auto& text : refusals(2, path)) {
    check_mentions(text, {"missing: 'optimizer.0.weight.moment0'"});
  }
  write_parts_of_run(path, false, true, {});
  for (const auto& text : refusals(2, path)) {
    check_mentions(text, {"what an optimizer keeps, but not one parameter"});
  }
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    ModelOf<Mlp> model(ranks, Seed{2});
    check_mentions(message_of<data_error>([&] { load_weights(path, model); }),
                   {"not one parameter"});
    save_weights(path, model);
  });
  for (const auto& text : refusals(2, path)) {
    check_mentions(text, {"no shardwise.step", "load_weights loads it"});
  }
}

TEST_CASE("rows that do not fit together as one tensor are refused") {
  const TemporaryFolder folder("shardwise_rows");
  const auto path = folder.path() / "rows.safetensors";
  SingleRank alone;
  Model<Mlp, Context<float, Reference, SingleRank>> model(alone, Seed{1});
  struct Case {
    TensorNames names;
    std::vector<std::string> said;
  };
  for (const Case& c : std::vector<Case>{
           {{{"0.bias", "b"}, {"2.bias", {"b", 11}}},
            {"row 10 of 'b' belongs to no tensor", "row 11 does"}},
           {{{"0.bias", "b"}, {"2.bias", {"b", 9}}}, {"'b' or the same rows of it"}},
           {{{"0.bias", FileTensor("b").in_pieces(3, 5)}}, {"10 rows", "'b' in pieces of 3"}},
           {{{"0.bias", FileTensor("b").in_pieces(5, 4)}}, {"4 rows apart"}},
           {{{"0.bias", FileTensor("b").in_pieces(5, 8)}},
            {"row 5 of 'b' belongs to no tensor", "row 8 does"}},
           {{{"0.weight", "w"}, {"2.weight", {"w", 10}}},
            {"F32 [10, 6]", "F32 [4, 10]", "rows of 'w'", "alike"}},
           {{{"0.weight", "w"}, {"2.weight", {"w", 10, true}}},
            {"F32 [10, 4] transposed", "alike"}},
           {{{"0.bias", {"b", 0, true}}}, {"'b' transposed", "only a matrix"}},
           {{{"0.bias", "b.*"}}, {"[output 10]", "a 'b.*'", "two or more axes"}}}) {
    check_mentions(
        message_of<argument_error>([&] { save_weights(path, model, {.names = c.names}); }), c.said);
  }
  CHECK(folder.names().empty());

  save_weights(path, model, {.names = {{"0.bias", "b"}, {"2.bias", {"b", 10}}}});
  const TensorNames overlapping{{"0.bias", "b"}, {"2.bias", {"b", 9}}};
  check_mentions(message_of<data_error>([&] { load_weights(path, model, {.names = overlapping}); }),
                 {"'b' is [14] in the file and [13] here"});
}

TEST_CASE("ranks that save other rows of one tensor are told so") {
  const TemporaryFolder folder("shardwise_other_rows");
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    ModelOf<Mlp> model(ranks, Seed{1});
    const TensorNames names = ranks.rank() == 0
                                  ? TensorNames{{"0.bias", "b"}, {"2.bias", {"b", 10}}}
                                  : TensorNames{{"2.bias", "b"}, {"0.bias", {"b", 4}}};
    const auto path = folder.path() / "rows.safetensors";
    check_mentions(message_of<argument_error>([&] { save_weights(path, model, {.names = names}); }),
                   {"ranks do not save the same"});
  });
}

TEST_CASE("a tensor of a file is loaded into several of the model") {
  struct Twice : Sequential<ColumnParallelLinear<6, 6, false>, RowParallelLinear<6, 6, false>> {};
  const TemporaryFolder folder("shardwise_twice");
  const auto path = folder.path() / "twice.safetensors";
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    ModelOf<Twice> model(ranks, Seed{1});
    save_weights(path, model);
    load_weights(path, model, {.names = {{"0.weight", "1.weight"}}, .ignore_unexpected = true});
    const auto first = model.gather("0.weight"), second = model.gather("1.weight");
    CHECK(std::equal(first.data(), first.data() + first.size(), second.data()));
  });
}
