// How much of the sums of gradients over data-parallel ranks a step waits for, when they are made
// while backward goes on. Two ranks have half of a batch each and talk over a slow line, which the
// communicator here adds to the real one: a sum takes a time in proportion to its bytes, one after
// the other, so that the sums of all gradients take half as long as a step without them. Beside it
// stands the same step with plain sums, with sums over a line that takes no time, and without sums.
// Thread ranks begin no sums: over the line theirs are made at the end.
//
// The same for what processes send where each stores a share of it: the line then takes half of a
// step for the gathers of parameters, made by each layer or ahead of it; or for the sums of
// gradients, made by each layer or while the layer before it goes backward.
//
//     mpiexec -n 2 bench_models_overlap [--rounds=N]    ranks that are processes
//     bench_models_overlap [--rounds=N]                 ranks that are threads

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/mpi_ranks.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/on_threads.hpp"
#include "support/program.hpp"
#include "support/random_values.hpp"
#include "support/together.hpp"

namespace {

namespace sw = shardwise;

constexpr std::size_t layers = 16, features = 512, rows = 512;
constexpr std::size_t bucket_bytes = features * features * sizeof(float);

/// The line between the ranks, of which each has its own copy.
struct Line {
  using Clock = std::chrono::steady_clock;

  double seconds_per_byte = 0;
  sw::Operation operation = sw::Operation::all_reduce;  // that takes time on it
  bool leaves_out = false;                              // whether sums are not made at all
  Clock::time_point free_at{};                          // when the sums before are through

  /// When a sum that begins now is through.
  Clock::time_point through(std::size_t bytes) {
    const std::chrono::duration<double> time(seconds_per_byte * static_cast<double>(bytes));
    free_at = std::max(free_at, Clock::now()) + std::chrono::duration_cast<Clock::duration>(time);
    return free_at;
  }
};

/// `Inner` over a line. Small sums, those of losses, take no time on it.
template <class Inner>
class OverLine : public sw::BeginningCollectives<OverLine<Inner>> {
  /// A collective that is under way. Ranks that cannot begin one make it at its end.
  template <class Move>
  class UnderWay {
    static auto begun(Inner& inner, const Move& move) {
      if constexpr (sw::BeginsCollectives<Inner>) {
        return move.begun_on(inner);
      } else {
        return [&inner, move] { move.on(inner); };
      }
    }

   public:
    UnderWay(Inner& inner, Line& line, const Move& move)
        : through_(line.through(move.in.size_bytes())), begun_(begun(inner, move)) {}

    void progress() {
      if constexpr (sw::BeginsCollectives<Inner>) begun_.progress();
    }
    void finish() {
      std::this_thread::sleep_until(through_);
      if constexpr (sw::BeginsCollectives<Inner>)
        begun_.finish();
      else
        begun_();
    }

   private:
    Line::Clock::time_point through_;
    decltype(begun(std::declval<Inner&>(), std::declval<const Move&>())) begun_;
  };

 public:
  static constexpr sw::CheckLevel check_level = sw::check_level_of<Inner>();

  OverLine(Inner inner, std::shared_ptr<Line> line)
      : inner_(std::move(inner)), line_(std::move(line)) {}
  explicit OverLine(Inner inner) : OverLine(std::move(inner), std::make_shared<Line>()) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  Line& line() { return *line_; }
  OverLine split(int color, int key) { return OverLine(inner_.split(color, key), line_); }

 private:
  friend sw::Collectives<OverLine>;
  friend sw::BeginningCollectives<OverLine>;

  template <class Move>
  UnderWay<Move> begin(const sw::Call&, const Move& move) {
    return UnderWay<Move>(inner_, *line_, move);
  }

  template <class Move>
  void move(const sw::Call& call, const Move& move) {
    const std::size_t bytes = call.mine * sw::size_of(call.dtype);
    if (call.operation != line_->operation || bytes < 10000) return move.on(inner_);
    if (line_->leaves_out) return;
    const auto through = line_->through(bytes);
    move.on(inner_);
    std::this_thread::sleep_until(through);
  }

  Inner inner_;
  std::shared_ptr<Line> line_;
};

struct Net
    : sw::Sequential<sw::Repeat<
          layers, sw::Sequential<sw::Linear<sw::split::none, features, features>, sw::Relu>>> {};

/// A model with its optimizer and batch.
template <class Ranks>
struct Trained {
  using Model = sw::Model<Net, sw::Context<float, sw::OneDnn, Ranks>>;

  Trained(Ranks& ranks, const sw::ModelOptions& options)
      : model(ranks, sw::Seed{1}, options),
        x({{sw::Axis::batch, rows}, {sw::Axis::feature, features}}, ranks.place()),
        labels({{sw::Axis::batch, rows}}, sw::place_for<sw::Invariant>(ranks.place())) {
    const auto values = bench::random_values<float>(
        x.size(), static_cast<unsigned>(ranks.place()[sw::MeshAxis::data].rank));
    std::copy(values.begin(), values.end(), x.data());
    for (std::size_t i = 0; i < labels.size(); ++i)
      labels[i] = static_cast<std::int32_t>(i % features);
  }

  void step() { train_step(model, x.view(), labels.view(), sw::CrossEntropy{}, optimizer); }
  std::vector<float> values() { return {model.values().begin(), model.values().end()}; }

  Model model;
  sw::Optimizer<sw::Sgd, Model> optimizer{model, sw::Sgd{.learning_rate = 1e-3}};
  sw::Tensor<float, sw::SamplesOverMesh<sw::Invariant>> x;
  sw::Tensor<std::int32_t, sw::Invariant> labels;
};

/// What is added to a step in each round, over what would be: part(round) of each.
template <class Added, class Whole>
bench::Spread exposed(std::size_t rounds, Added added, Whole whole) {
  std::vector<double> parts(rounds);
  for (std::size_t i = 0; i < rounds; ++i) parts[i] = added(i) / whole(i);
  return bench::Spread::of(parts);
}

/// Both make the same steps. Warms up.
template <class Inner, class Ranks>
void require_equal(Inner& world, Trained<Ranks>& plain, Trained<Ranks>& over) {
  for (int i = 0; i < 3; ++i) {
    plain.step();
    over.step();
  }
  bench::require_on_all(world, plain.values() == over.values(), "sums in backward");
}

/// The time that the line takes for each byte, if it takes half of these steps for so many.
template <class Inner>
double seconds_per_byte(Inner& world, const bench::Run& step, std::size_t bytes) {
  const double seconds = bench::seconds_together(world, 10, step);
  const auto nanoseconds = bench::of_first(world, static_cast<std::int64_t>(seconds * 1e9));
  return 0.5e-9 * static_cast<double>(nanoseconds) / static_cast<double>(bytes);
}

template <class Inner>
std::vector<bench::Timing> over_line(Inner& world, int rounds) {
  using Ranks = sw::MeshRanks<OverLine<Inner>>;
  Ranks ranks(OverLine<Inner>(world), {.data = 2});
  Line& line = ranks.line();
  Trained<Ranks> plain(ranks, {.bucket_bytes = bucket_bytes}),
      over(ranks, {.bucket_bytes = bucket_bytes, .sums_meanwhile = true});
  require_equal(world, plain, over);

  line.leaves_out = true;
  const std::size_t bytes = plain.model.values().size_bytes();
  const double slow = seconds_per_byte(
      world, [&] { plain.step(); }, bytes);
  const auto with = [&](bool leaves_out, double time, Trained<Ranks>& trained) {
    return [&line, &trained, leaves_out, time] {
      line.leaves_out = leaves_out;
      line.seconds_per_byte = time;
      trained.step();
    };
  };
  const std::vector<std::string> names{"without sums", "sums", "sums in backward",
                                       "sums over the line", "in backward, over the line"};
  const auto times =
      bench::in_turns(world,
                      {with(true, 0, plain), with(false, 0, plain), with(false, 0, over),
                       with(false, slow, plain), with(false, slow, over)},
                      rounds, 1e-3);
  auto timings = bench::timings_of(names, times);
  const double line_takes = slow * static_cast<double>(bytes);
  const auto of = [&](std::size_t slower, std::size_t faster) {
    return [&times, slower, faster](std::size_t i) { return times[slower][i] - times[faster][i]; };
  };
  const auto of_line = exposed(times[0].size(), of(4, 2), [&](std::size_t) { return line_takes; });
  const auto of_all = exposed(times[0].size(), of(4, 0), of(3, 0));
  timings[4].also = {
      {"exposed of the line's time", of_line.median}, {"10 %", of_line.p10}, {"90 %", of_line.p90},
      {"and of the sums' own", of_all.median},        {"10 %", of_all.p10},  {"90 %", of_all.p90}};
  return timings;
}

/// What layers of a model with the Keep of these options wait for, or with all of them what goes on
/// beside layers: calls of an operation on all that a rank has, in so many passes.
template <class Inner>
std::vector<bench::Timing> shares_over_line(Inner& world, const sw::ModelOptions& options,
                                            sw::Operation operation, std::size_t passes,
                                            const std::string& name, int rounds) {
  using Ranks = sw::MeshRanks<OverLine<Inner>>;
  Ranks ranks(OverLine<Inner>(world), {.data = 2});
  Line& line = ranks.line();
  line.operation = operation;
  Trained<Ranks> plain(ranks, {.keep = options.keep, .bucket_bytes = bucket_bytes}),
      beside(ranks, options);
  for (int i = 0; i < 3; ++i) {
    plain.step();
    beside.step();
  }
  bench::require_on_all(world, plain.values() == beside.values(), name);

  const std::size_t bytes = passes * plain.model.values().size_bytes();
  const double slow = seconds_per_byte(
      world, [&] { plain.step(); }, bytes);
  const auto with = [&](double time, Trained<Ranks>& trained) {
    return [&line, &trained, time] {
      line.seconds_per_byte = time;
      trained.step();
    };
  };
  const std::vector<std::string> names{name, name + " beside layers", name + " over the line",
                                       "beside layers, over the line"};
  const auto times = bench::in_turns(
      world, {with(0, plain), with(0, beside), with(slow, plain), with(slow, beside)}, rounds,
      1e-3);
  auto timings = bench::timings_of(names, times);
  const auto exposed_of = [&](std::size_t over, std::size_t without) {
    return exposed(
        times[0].size(), [&](std::size_t i) { return times[over][i] - times[without][i]; },
        [&](std::size_t) { return slow * static_cast<double>(bytes); });
  };
  for (const std::size_t one : {2U, 3U}) {
    const bench::Spread part = exposed_of(one, one - 2);
    timings[one].also = {
        {"exposed of the line's time", part.median}, {"10 %", part.p10}, {"90 %", part.p90}};
  }
  return timings;
}

}  // namespace

int main(int argc, char** argv) {
  int status = 0;
  sw::run_mpi_ranks([&](sw::MpiCommunicator& processes) {
    const bool is_first = processes.rank() == 0;
    if (!is_first) bench::take_option(argc, argv, "--benchmark_out=");  // one process writes it
    bench::Program program(argc, argv);
    if (processes.size() == 2) {
      program.add("processes", [&] { return over_line(processes, program.rounds()); });
      program.add("processes/gathers", [&] {
        return shares_over_line(
            processes,
            {.keep = sw::Keep::all_over_data, .bucket_bytes = bucket_bytes, .layers_ahead = 1},
            sw::Operation::all_gather, 2, "gathers", program.rounds());
      });
      program.add("processes/sums of shares", [&] {
        return shares_over_line(processes,
                                {.keep = sw::Keep::gradients_over_data,
                                 .bucket_bytes = bucket_bytes,
                                 .sums_meanwhile = true},
                                sw::Operation::reduce_scatter, 1, "sums of shares",
                                program.rounds());
      });
    } else {
      program.add("threads", [&] {
        return bench::on_threads(2, [&](auto& all) { return over_line(all, program.rounds()); });
      });
    }
    status = program.run(!is_first);
  });
  return status;
}
