// A model that only goes forward is loaded to its own memory, and one that is to be loaded draws no
// numbers. Neither is used with other numbers than those of a whole file.
//
// Compiled alone: it defines pread of the C library for the whole program.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_mesh.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "support/count_allocations.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"
#include "unit/checkpoint/texts.hpp"

using namespace shardwise;
using testing::bytes_of;
using testing::check_mentions;
using testing::message_of;
using testing::TemporaryFolder;

namespace {

/// Called before a read at this offset of a file or behind it, once.
std::atomic<off_t> interrupted_at = -1;
std::function<void()> interruption;

void interrupt(off_t offset) {
  off_t at = interrupted_at;
  if (at < 0 || offset < at || !interrupted_at.compare_exchange_strong(at, -1)) return;
  interruption();
}

}  // namespace

extern "C" ssize_t pread(int file, void* to, std::size_t bytes, off_t offset) {
  interrupt(offset);
  return ::syscall(SYS_pread64, file, to, bytes, offset);
}

namespace {

struct Mlp : Sequential<ColumnParallelLinear<6, 10>, Relu, RowParallelLinear<10, 4>> {};
/// The same, made with its layers.
struct Counted : Sequential<ColumnParallelLinear<6, 10>, Relu, RowParallelLinear<10, 4>> {
  using Sequential::Sequential;
};
/// More elements than are converted at once, and of a number that rows do not divide.
struct Wide : Sequential<ColumnParallelLinear<701, 503>, Relu, RowParallelLinear<503, 701>> {};

template <class A, class T, class Use>
using ModelOf =
    Model<A, Context<T, Reference, ThreadCommunicator>, Ends<Invariant, Invariant>, Use>;

/// How many parameters of the rank got initial values by the rule below.
thread_local int drawn = 0;
Initializer counted(const Fans& fans) {
  ++drawn;
  return init::torch_linear(fans);
}

constexpr ModelOptions to_be_loaded{.to_be_loaded = true};

void save(const std::filesystem::path& path, const TensorNames& names = {},
          std::uint64_t seed = 1) {
  SingleRank alone;
  Model<Mlp, Context<float, Reference, SingleRank>> model(alone, Seed{seed});
  save_weights(path, model, {.names = names});
}

template <class M>
std::vector<double> numbers_of(M& model) {
  const auto values = model.values();
  return {values.begin(), values.end()};
}

/// The bytes of all allocations while it lives.
class Allocated {
 public:
  Allocated() {
    bytes_ = 0;
    testing::note_allocation = [](std::size_t bytes, const void*) { bytes_ += bytes; };
  }
  Allocated(const Allocated&) = delete;
  Allocated& operator=(const Allocated&) = delete;
  ~Allocated() { testing::note_allocation = nullptr; }

  static std::size_t bytes() { return bytes_; }

 private:
  static inline std::atomic<std::size_t> bytes_;
};

/// What calls of a model say that need its numbers, each of which must throw.
template <class M>
std::vector<std::string> refusals(M& model, const std::filesystem::path& to) {
  using Refused = argument_error;
  const Place place = place_of(model.ranks());
  const Tensor<float, Invariant> x({{Axis::batch, 2}, {Axis::feature, 6}}, place);
  const Tensor<float, Invariant> bias({{Axis::output, 10}}, place);
  return {message_of<Refused>([&] { model.evaluate(x.view()); }),
          message_of<Refused>([&] { model.gather("0.bias"); }),
          message_of<Refused>([&] { model.set("0.bias", bias.view()); }),
          message_of<Refused>([&] { model.visit_parameters([](auto&) {}); }),
          message_of<Refused>([&] { model.visit_stored([](auto&) {}); }),
          message_of<Refused>([&] { model.visit_buffers([](auto&) {}); }),
          message_of<Refused>([&] { model.values(); }),
          message_of<Refused>([&] { model.values_changed(); }),
          message_of<Refused>([&] { model.next_step(); }),
          message_of<Refused>([&] { save_weights(to, model); })};
}

void write_at(const std::filesystem::path& path, off_t offset) {
  const int file = ::open(path.c_str(), O_WRONLY);
  REQUIRE(file >= 0);
  REQUIRE(::pwrite(file, "other", 5, offset) == 5);
  ::close(file);
}

/// The offset of the tensors' bytes in a file.
off_t data_of(const std::filesystem::path& path) {
  const TensorFiles files(path);
  const TensorFiles::Place& place = files.tensors().begin()->second;
  return static_cast<off_t>(files.begin_of(place) - place.info.begin);
}

/// The same file without checksums.
void forget_checksums(const std::filesystem::path& path, const TemporaryFolder& folder) {
  std::string bytes = bytes_of(path);
  const std::string key = "shardwise.checksum";
  for (std::size_t at = 0; (at = bytes.find(key, at)) != std::string::npos; ++at) bytes[at] = 'S';
  folder.write(path.filename().string(), bytes);
}

}  // namespace

TEST_CASE("numbers in place are those of separate memory, at any ranks and in any dtype or order") {
  const TemporaryFolder folder("shardwise_in_place");
  const auto path = folder.path() / "model.safetensors";
  SingleRank alone;
  Model<Wide, Context<double, Reference, SingleRank>> saved(alone, Seed{1});
  const std::size_t somewhere = 350'000;
  const double there = saved.gather("0.weight")[somewhere];
  for (const TensorNames& names :
       {TensorNames{}, TensorNames{{"0.weight", {"a", 0, true}}, {"2.weight", {"b", 0, true}}}}) {
    save_weights(path, saved, {.names = names});
    for (const bool is_checked : {true, false}) {
      CAPTURE(is_checked);
      if (!is_checked) forget_checksums(path, folder);
      for (const int size : {1, 2, 3, 5, 8}) {
        CAPTURE(size);
        run_ranks(size, [&](ThreadCommunicator& ranks) {
          const auto check = [&]<class T>(T) {
            ModelOf<Wide, T, Train> staged(ranks, Seed{2});
            ModelOf<Wide, T, ForwardOnly> in_place(ranks, Seed{2}, to_be_loaded);
            load_weights(path, staged, {.names = names, .convert = true});
            load_weights(path, in_place, {.names = names, .convert = true});
            CHECK(numbers_of(in_place) == numbers_of(staged));
            CHECK(in_place.gather("0.weight")[somewhere] == static_cast<T>(accumulate_t<T>(there)));
          };
          check(double{});
          if (is_checked) check(bf16{});
        });
      }
    }
  }
}

TEST_CASE("numbers in place are those of separate memory where ranks have shares of parameters") {
  const TemporaryFolder folder("shardwise_in_place_shares");
  const auto path = folder.path() / "model.safetensors";
  const TensorNames names{{"2.weight", {"b", 0, true}}};
  save(path, names);
  using Mesh = MeshRanks<ThreadCommunicator>;
  run_mesh({.data = 3, .tensor = 2}, [&](Mesh& ranks) {
    const auto loaded = [&]<class Use>(Use) {
      Model<Mlp, Context<bf16, Reference, Mesh>, Ends<Invariant, Invariant>, Use> model(
          ranks, Seed{2}, {.keep = Keep::all_over_data, .to_be_loaded = !Use::trains});
      load_weights(path, model, {.names = names, .convert = true});
      return numbers_of(model);
    };
    CHECK(loaded(ForwardOnly{}) == loaded(Train{}));
  });
}

TEST_CASE("a load in place takes memory for one piece, and no more") {
  const TemporaryFolder folder("shardwise_pieces");
  const auto path = folder.path() / "model.safetensors";
  SingleRank alone;
  Model<Wide, Context<double, Reference, SingleRank>> saved(alone, Seed{1});
  save_weights(path, saved);
  const auto bytes_to_load = [&]<class T, class Use>(T, Use) {
    Model<Wide, Context<T, Reference, SingleRank>, Ends<Invariant, Invariant>, Use> model(
        alone, Seed{2}, {.to_be_loaded = !Use::trains});
    const Allocated allocated;
    load_weights(path, model, {.convert = true});
    return Allocated::bytes();
  };
  const std::size_t of_file = std::filesystem::file_size(path);  // 5.6 MB
  const std::size_t small = 1 << 16;                             // of headers and names
  CHECK(bytes_to_load(double{}, Train{}) > of_file - small);
  CHECK(bytes_to_load(double{}, ForwardOnly{}) < small);
  CHECK(bytes_to_load(float{}, ForwardOnly{}) < (2 << 20) + small);
}

TEST_CASE("a model to be loaded draws nothing, and says so when it is used before") {
  const TemporaryFolder folder("shardwise_unset");
  const auto path = folder.path() / "model.safetensors";
  save(path);
  for (const int size : {1, 2, 3, 5, 8}) {
    CAPTURE(size);
    run_ranks(size, [&](ThreadCommunicator& ranks) {
      const Counted net(Counted::layer_type<0>{}.initialized_by(counted, counted), {},
                        Counted::layer_type<2>{}.initialized_by(counted, counted));
      drawn = 0;
      const ModelOf<Counted, float, ForwardOnly> control(net, ranks, Seed{2});
      CHECK(drawn == 4);
      ModelOf<Counted, float, ForwardOnly> model(net, ranks, Seed{2}, {}, to_be_loaded);
      CHECK(drawn == 4);
      for (const std::string& text : refusals(model, folder.path() / "no.safetensors"))
        check_mentions(text, {"Counted",
                              "this model was made to_be_loaded and has no numbers yet: call "
                              "load_weights before, or make it without that option"});
      check_mentions(message_of<data_error>([&] { load_weights(folder.path() / "none", model); }),
                     {"none"});
      for (const std::string& text : refusals(model, folder.path() / "no.safetensors"))
        check_mentions(text, {"its load failed (", "none", "load it again"});
      CHECK(names_in_order(model, {"a", "b", "c", "d"}).size() == 4);
      load_weights(path, model);
      ModelOf<Mlp, float, Train> begun(ranks, Seed{1});
      CHECK(numbers_of(model) == numbers_of(begun));
    });
  }
  CHECK(folder.names() == std::vector<std::string>{"model.safetensors"});
}

TEST_CASE("a model that trains has initial values") {
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    check_mentions(message_of<argument_error>(
                       [&] { ModelOf<Mlp, float, Train>(ranks, Seed{1}, to_be_loaded); }),
                   {"Mlp: to_be_loaded is for a ForwardOnly model", "leave the option out"});
  });
}

TEST_CASE("after a load in place that failed a model is used by no rank until another one ends") {
  const TemporaryFolder folder("shardwise_spoiled");
  const auto path = folder.path() / "model.safetensors";
  struct Spoiled {
    std::string by_one, by_several;  // what ranks say: another one may find that the file changed
    std::function<void(off_t data)> before, meanwhile;
  };
  const auto change = [&](off_t data) { write_at(path, data); };
  const auto nothing = [](off_t) {};
  for (const Spoiled& spoiled :
       {Spoiled{"ends at byte", "model.safetensors: ", nothing,
                [&](off_t data) { std::filesystem::resize_file(path, std::uintmax_t(data) + 1); }},
        Spoiled{"was changed while it was read", "was changed while it was read", nothing, change},
        Spoiled{"is not what was saved", "is not what was saved", change, nothing}}) {
    for (const int size : {1, 2, 3, 5, 8}) {
      CAPTURE(size);
      const std::string& said = size == 1 ? spoiled.by_one : spoiled.by_several;
      save(path);
      const off_t data = data_of(path);
      const auto spoil = [&] {
        save(path);
        spoiled.before(data);
        std::filesystem::last_write_time(  // a change may come within the grain of its clock
            path, std::filesystem::last_write_time(path) - std::chrono::hours(1));
        interruption = [&] { spoiled.meanwhile(data); };
        interrupted_at = data + 1;
      };
      const auto load = [&](auto& model) {
        return message_of<data_error>([&] { load_weights(path, model); });
      };
      run_ranks(size, [&]<class R>(R& ranks) {
        const auto together = [&](auto&& f) {
          if (ranks.rank() == 0) f();
          detail::on_all_ranks(ranks, [] {});
        };
        ModelOf<Mlp, float, ForwardOnly> model(ranks, Seed{2});
        const auto before = numbers_of(model);
        together([&] { save(path, {{"0.bias", "other"}}); });
        check_mentions(load(model), {"missing: '0.bias'"});
        CHECK(numbers_of(model) == before);  // nothing was read

        together(spoil);
        check_mentions(load(model), {said});
        for (const std::string& text : refusals(model, folder.path() / "no.safetensors"))
          check_mentions(text, {"Mlp", "only some of the numbers", said, "load it again"});
        check_mentions(message_of<data_error>([&] { load_weights(folder.path() / "none", model); }),
                       {"none"});
        check_mentions(message_of<argument_error>([&] { static_cast<void>(model.values()); }),
                       {"only some of the numbers", said});
        together([&] { save(path); });
        load_weights(path, model);
        ModelOf<Mlp, float, Train> whole(ranks, Seed{1}), trained(ranks, Seed{3});
        CHECK(numbers_of(model) == numbers_of(whole));

        const auto as_before = numbers_of(trained);
        together(spoil);
        check_mentions(load(trained), {said});
        CHECK(numbers_of(trained) == as_before);
      });
    }
  }
  interrupted_at = -1;
}

TEST_CASE("no reader shares numbers that a model does not have") {
  SingleRank alone;
  using Alone =
      Model<Mlp, Context<float, Reference, SingleRank>, Ends<Invariant, Invariant>, ForwardOnly>;
  Alone model(alone, Seed{1}, to_be_loaded);
  check_mentions(message_of<argument_error>([&] { Alone reader(model); }), {"no numbers yet"});
}
