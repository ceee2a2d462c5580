// The calls of a group on a stream: their state machine against a model of it, over every sequence
// of a few events.

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "shardwise/comm/detail/pending_calls.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using detail::FailureSource;

namespace {

struct Stream;

struct StreamMark {
  bool reached = false;
  bool broken = false;

  int record(Stream* stream);
  bool is_reached() const {
    if (broken) throw backend_error("the device is broken");
    return reached;
  }
};

/// A stream that goes on when the test says so.
struct Stream {
  std::deque<StreamMark*> marks;
  bool refuses = false;

  void finish_one() {
    marks.front()->reached = true;
    marks.pop_front();
  }
};

int StreamMark::record(Stream* stream) {
  if (stream->refuses) return 7;
  reached = false;
  stream->marks.push_back(this);
  return 0;
}

using Calls = detail::PendingCalls<StreamMark>;
using Time = Calls::Time;

constexpr Time start{};
const Call sum{.operation = Operation::all_reduce, .dtype = Dtype::float32, .elements = 640};

void enqueue(Calls& calls, Stream& stream, const Call& call, Time now) {
  calls.begin(call, now);
  CHECK(calls.recorded(&stream) == 0);
}

/// What the table in pending_calls.hpp says, written down a second time and plainly.
struct Model {
  enum class State { watching, leaving, ending, ended, failed } state = State::watching;
  std::vector<int> calls;  ///< when each began to wait; the first is the oldest
  int since = 0;
  bool is_released = false;

  void idle(int now) {
    if (state != State::leaving || !calls.empty()) return;
    state = State::ending;
    since = now;
  }
  void fail() {
    if (state != State::ended) state = State::failed;
  }
};

enum class Event { enqueue, complete, poll, late, error, request, release, end };
constexpr int number_of_events = 8;

/// Applies one event to both; false if it cannot happen there.
bool apply(Event event, Calls& calls, Stream& stream, Model& model, int& now) {
  using State = Model::State;
  const auto time = [&] { return start + std::chrono::seconds(now); };
  ++now;
  switch (event) {
    case Event::enqueue:
      if (model.state == State::failed) {
        CHECK_THROWS_AS(calls.begin(sum, time()), shardwise::error);
        return true;
      }
      if (model.state != State::watching) return false;
      enqueue(calls, stream, sum, time());
      if (model.calls.empty()) model.since = now;
      model.calls.push_back(now);
      break;
    case Event::complete:
      if (model.calls.empty() || model.state == State::failed) return false;
      stream.finish_one();
      calls.poll(time());
      model.calls.erase(model.calls.begin());
      model.since = now;
      model.idle(now);
      break;
    case Event::late:
      now += 60;
      [[fallthrough]];
    case Event::poll:
      calls.poll(time());
      if ((!model.calls.empty() || model.state == State::ending) && now - model.since >= 60)
        model.fail();
      break;
    case Event::error:
      calls.fail(FailureSource::library, "broken");
      model.fail();
      break;
    case Event::request:
      calls.request_abort("no more");
      model.fail();
      break;
    case Event::release:
      if (model.is_released) return false;
      calls.released(time());
      model.is_released = true;
      if (model.state == State::watching) model.state = State::leaving;
      model.idle(now);
      break;
    case Event::end:
      if (model.state != State::ending) return false;
      calls.ended();
      model.state = State::ended;
      break;
  }
  const bool failed = model.state == State::failed;
  const bool right = (calls.state() == Calls::State::failed) == failed &&
                     calls.reason().empty() == !failed &&
                     calls.is_finished() == (model.state == State::ended) &&
                     (calls.state() == Calls::State::ending) == (model.state == State::ending) &&
                     (failed || calls.is_idle(time()) == model.calls.empty());
  if (!right) FAIL_CHECK("event " << static_cast<int>(event) << " went wrong");
  return true;
}

}  // namespace

TEST_CASE("pending calls: every sequence of up to six events does what the table says") {
  constexpr int length = 6;
  std::size_t sequences = 0;
  int all = 1;
  for (int i = 0; i < length; ++i) all *= number_of_events;
  for (int code = 0; code < all; ++code) {
    Calls calls(2, 60s);
    Stream stream;
    Model model;
    int now = 0;
    int rest = code;
    int done = 0;
    while (done < length &&
           apply(static_cast<Event>(rest % number_of_events), calls, stream, model, now)) {
      rest /= number_of_events;
      ++done;
    }
    if (done == length) ++sequences;
  }
  CHECK(sequences > 10000);
}

TEST_CASE("pending calls: one that takes too long is named: rank, number, limit and elements") {
  Calls calls(2, 60s);
  Stream stream;
  enqueue(calls, stream, sum, start);
  const Call next{
      .operation = Operation::broadcast, .dtype = Dtype::bfloat16, .root = 1, .elements = 8};
  enqueue(calls, stream, next, start);
  calls.poll(start + 59s);
  stream.finish_one();
  calls.poll(start + 59s);
  calls.poll(start + 118s);  // the second has been the oldest for 59 s
  CHECK(calls.state() != Calls::State::failed);
  calls.poll(start + 119s);
  CHECK(calls.state() == Calls::State::failed);
  calls.poll(start + 200s);
  const char* const reason =
      "rank 2: broadcast(bfloat16, 8 elements, root 1), call 2 of its group, was not done within "
      "60 s: another rank has left, has made another call, or takes longer than that. The "
      "communicator was aborted";
  CHECK_THROWS_WITH_AS(calls.check_failure(), reason, peer_error);
  const std::string too_late = "rank 2: all_reduce(sum, float32, 640 elements) comes too late: " +
                               std::string(reason).substr(8);
  CHECK_THROWS_WITH_AS(calls.begin(sum, start + 200s), too_late.c_str(), peer_error);
  CHECK_THROWS_WITH_AS(calls.refuse_after_failure(sum), too_late.c_str(), peer_error);
}

TEST_CASE("pending calls: one that is not on the stream is not done") {
  Calls calls(0, 60s);
  Stream stream;
  enqueue(calls, stream, sum, start);
  stream.finish_one();
  CHECK(calls.is_idle(start));

  calls.begin(sum, start);  // with the event that the first call had reached
  CHECK_FALSE(calls.is_idle(start));
  stream.refuses = true;
  CHECK(calls.recorded(&stream) == 7);
  CHECK_FALSE(calls.is_idle(start));
  calls.poll(start + 60s);
  CHECK(calls.state() == Calls::State::failed);
}

TEST_CASE("pending calls: as many events are made as calls were pending at once") {
  Calls calls(0, 60s);
  Stream stream;
  std::set<StreamMark*> made;
  for (int round = 0; round < 10; ++round) {
    for (int call = 0; call < 3; ++call) {
      enqueue(calls, stream, sum, start);
      made.insert(stream.marks.back());
    }
    while (!stream.marks.empty()) stream.finish_one();
  }
  CHECK(made.size() == 3);
}

TEST_CASE("pending calls: a clock that stands still or goes back gives nobody up") {
  Calls calls(0, 100ms);
  Stream stream;
  enqueue(calls, stream, sum, start + 10s);
  for (const Time now : {start + 10s, start, start + 10s + 99ms}) {
    calls.poll(now);
    CHECK(calls.state() != Calls::State::failed);
  }
  calls.poll(start + 10s + 100ms);
  CHECK(calls.state() == Calls::State::failed);
  CHECK(calls.reason().find("within 100 ms") != std::string::npos);
}

TEST_CASE("pending calls: blame decides the type, and the first reason stays") {
  Calls calls(1, 60s);
  calls.fail(FailureSource::library, "NCCL: broken");
  calls.request_abort("later");
  CHECK_THROWS_WITH_AS(calls.check_failure(), "rank 1: NCCL: broken", backend_error);

  Calls other(1, 60s);
  Stream stream;
  enqueue(other, stream, sum, start);
  CHECK_THROWS_WITH_AS(other.fail_and_throw(FailureSource::another_rank, "gone"),
                       "rank 1: all_reduce(sum, float32, 640 elements), call 1 of its group: gone",
                       peer_error);
  other.released(start);
  CHECK_FALSE(other.is_finished());
  other.aborted();
  CHECK(other.state() == Calls::State::aborted);
  CHECK(other.is_finished());
}

TEST_CASE("pending calls: an event that cannot be asked is a failure of the library") {
  Calls calls(1, 60s);
  Stream stream;
  enqueue(calls, stream, sum, start);
  stream.marks.front()->broken = true;
  calls.poll(start);
  CHECK_THROWS_WITH_AS(calls.check_failure(),
                       "rank 1: all_reduce(sum, float32, 640 elements), call 1 of its group: the "
                       "device is broken",
                       backend_error);
}

TEST_CASE("pending calls: an end that does not come is a failure") {
  Calls calls(0, 60s);
  Stream stream;
  enqueue(calls, stream, sum, start);
  calls.released(start);
  CHECK(calls.state() == Calls::State::watching);
  stream.finish_one();
  calls.poll(start + 1s);
  CHECK(calls.state() == Calls::State::ending);
  calls.poll(start + 60s);
  CHECK(calls.state() != Calls::State::failed);
  calls.poll(start + 61s);
  CHECK(calls.state() == Calls::State::failed);
  CHECK(calls.reason() == "the group could not be ended within 60 s");
}
