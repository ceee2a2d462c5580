// The watchdog's state machine, against a model of it, over every sequence of a few events.

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/comm/detail/call_watch.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using detail::CallWatch;
using Action = CallWatch::Action;
using FailureSource = CallWatch::FailureSource;
using Time = CallWatch::Time;

namespace {

constexpr Time start{};
const Call sum{.operation = Operation::all_reduce, .dtype = Dtype::float32, .elements = 640};

/// What the table in call_watch.hpp says, written down a second time and plainly.
struct Model {
  enum class State { watching, leaving, ending, ended, failed } state = State::watching;
  std::vector<int> calls;  ///< when each began to wait; the first is the oldest
  int since = 0;

  Action idle(int now) {
    if (state != State::leaving || !calls.empty()) return Action::none;
    state = State::ending;
    since = now;
    return Action::end;
  }
  Action abort() {
    if (state == State::failed || state == State::ended) return Action::none;
    state = State::failed;
    return Action::abort;
  }
};

enum class Event { enqueue, complete, tick, late, error, request, release, end };
constexpr int number_of_events = 8;

/// Applies one event to both; false if it cannot happen there.
bool apply(Event event, CallWatch& watch, Model& model, int& now) {
  using State = Model::State;
  const auto time = [&] { return start + std::chrono::seconds(now); };
  ++now;
  Action got = Action::none;
  Action expected = Action::none;
  switch (event) {
    case Event::enqueue:
      if (model.state == State::failed) {
        CHECK_THROWS_AS(watch.enqueued(sum, time()), shardwise::error);
        return true;
      }
      if (model.state != State::watching) return false;
      watch.enqueued(sum, time());
      if (model.calls.empty()) model.since = now;
      model.calls.push_back(now);
      break;
    case Event::complete:
      if (model.calls.empty() || model.state == State::failed) return false;
      got = watch.completed(time());
      model.calls.erase(model.calls.begin());
      model.since = now;
      expected = model.idle(now);
      break;
    case Event::late:
      now += 60;
      [[fallthrough]];
    case Event::tick:
      got = watch.tick(time());
      if ((!model.calls.empty() || model.state == State::ending) && now - model.since >= 60)
        expected = model.abort();
      else
        expected = model.idle(now);
      break;
    case Event::error:
      got = watch.async_error(FailureSource::library, "broken");
      expected = model.abort();
      break;
    case Event::request:
      got = watch.abort_requested("no more");
      expected = model.abort();
      break;
    case Event::release:
      if (model.state != State::watching && model.state != State::failed) return false;
      got = watch.released(time());
      if (model.state == State::watching) model.state = State::leaving;
      expected = model.idle(now);
      break;
    case Event::end:
      if (model.state != State::ending) return false;
      watch.ended();
      model.state = State::ended;
      break;
  }
  const bool right = got == expected && watch.has_failed() == (model.state == State::failed) &&
                     watch.has_ended() == (model.state == State::ended) &&
                     watch.is_ending() == (model.state == State::ending) &&
                     watch.is_idle() == model.calls.empty();
  if (!right) FAIL_CHECK("event " << static_cast<int>(event) << " went wrong");
  return true;
}

}  // namespace

TEST_CASE("watch: every sequence of up to six events does what the table says") {
  constexpr int length = 6;
  std::size_t sequences = 0;
  int all = 1;
  for (int i = 0; i < length; ++i) all *= number_of_events;
  for (int code = 0; code < all; ++code) {
    CallWatch watch(2, 60s);
    Model model;
    int now = 0;
    int rest = code;
    int done = 0;
    while (done < length && apply(static_cast<Event>(rest % number_of_events), watch, model, now)) {
      rest /= number_of_events;
      ++done;
    }
    if (done == length) ++sequences;
  }
  CHECK(sequences > 10000);
}

TEST_CASE("watch: a call that takes too long is named with rank, number, limit and elements") {
  CallWatch watch(2, 60s);
  CHECK(watch.enqueued(sum, start) == 1);
  const Call next{
      .operation = Operation::broadcast, .dtype = Dtype::bfloat16, .root = 1, .elements = 8};
  CHECK(watch.enqueued(next, start) == 2);
  CHECK(watch.tick(start + 59s) == Action::none);
  CHECK(watch.completed(start + 59s) == Action::none);
  CHECK(watch.tick(start + 118s) == Action::none);  // the second has been the oldest for 59 s
  CHECK(watch.tick(start + 119s) == Action::abort);
  CHECK(watch.tick(start + 200s) == Action::none);
  const char* const reason =
      "rank 2: broadcast(bfloat16, 8 elements, root 1), call 2 of its group, was not done within "
      "60 s: another rank has left, has made another call, or takes longer than that. The "
      "communicator was aborted";
  CHECK_THROWS_WITH_AS(watch.fail(), reason, peer_error);
  CHECK_THROWS_WITH_AS(watch.enqueued(sum, start + 200s),
                       ("rank 2: all_reduce(sum, float32, 640 elements) comes too late: " +
                        std::string(reason).substr(8))
                           .c_str(),
                       peer_error);
}

TEST_CASE("watch: a clock that stands still or goes back gives nobody up") {
  CallWatch watch(0, 100ms);
  watch.enqueued(sum, start + 10s);
  CHECK(watch.tick(start + 10s) == Action::none);
  CHECK(watch.tick(start) == Action::none);
  CHECK(watch.tick(start + 10s + 99ms) == Action::none);
  CHECK(watch.tick(start + 10s + 100ms) == Action::abort);
  CHECK(watch.reason().find("within 100 ms") != std::string::npos);
}

TEST_CASE("watch: blame decides the type, and the first reason stays") {
  CallWatch watch(1, 60s);
  CHECK(watch.async_error(FailureSource::library, "NCCL: broken") == Action::abort);
  CHECK(watch.abort_requested("later") == Action::none);
  CHECK_THROWS_WITH_AS(watch.fail(), "rank 1: NCCL: broken", backend_error);

  CallWatch other(1, 60s);
  other.enqueued(sum, start);
  CHECK(other.async_error(FailureSource::another_rank, "gone") == Action::abort);
  CHECK_THROWS_WITH_AS(other.fail(),
                       "rank 1: all_reduce(sum, float32, 640 elements), call 1 of its group: gone",
                       peer_error);
}

TEST_CASE("watch: an end that does not come is a failure") {
  CallWatch watch(0, 60s);
  watch.enqueued(sum, start);
  CHECK(watch.released(start) == Action::none);
  CHECK(watch.completed(start + 1s) == Action::end);
  CHECK(watch.tick(start + 60s) == Action::none);
  CHECK(watch.tick(start + 61s) == Action::abort);
  CHECK(watch.reason() == "the group could not be ended within 60 s");
}
