#pragma once
// Writes the events of Tracers to a file in Chrome's trace-event format.
//
// source   "Trace Event Format", complete events "X" and metadata events "M"; ui.perfetto.dev and
//          chrome://tracing open it

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/file.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/observe/tracer.hpp"

namespace shardwise {

namespace detail {

/// A string of JSON, with its quotes.
inline std::string json_quoted(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20) {
      quoted += {'\\', 'u', '0', '0', digits[code / 16], digits[code % 16]};
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + '"';
}

/// Nanoseconds as microseconds, "12.345".
inline std::string microseconds(std::int64_t nanoseconds) {
  const std::string fraction = std::to_string(nanoseconds % 1000);
  return std::to_string(nanoseconds / 1000) + '.' + std::string(3 - fraction.size(), '0') +
         fraction;
}

/// The events of one rank as lines of JSON. A rank is a process of the trace, with one row for
/// computation and one for communication. Numbers of processes and rows begin at 1, because 0 has a
/// special meaning in viewers.
class TraceRows {
 public:
  TraceRows(const Tracer& tracer, int rank, const mesh& sizes, std::int64_t zero)
      : events_(tracer.events()),
        rank_(rank),
        sizes_(sizes),
        zero_(zero),
        holds_part_(events_.size()) {
    for (const Tracer::Event& event : events_) {
      if (is_part(event) && event.within != Tracer::none) holds_part_[event.within] = true;
    }
    name_rows(tracer.dropped());
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (!is_part(events_[i]) || holds_part_[i]) add(i);
    }
  }

  const std::string& lines() const { return lines_; }

 private:
  using Kind = Work::Kind;

  static bool is_part(const Tracer::Event& event) { return event.work.kind == Kind::part; }

  std::string process() const { return "\"pid\":" + std::to_string(rank_ + 1); }
  std::string row(bool sends) const {
    return process() + ",\"tid\":" + std::to_string(2 * rank_ + (sends ? 2 : 1));
  }

  void line(const std::string& object) { lines_ += (lines_.empty() ? "{" : ",\n{") + object + '}'; }

  void name_rows(std::size_t dropped) {
    const std::string rank = std::to_string(rank_);
    const auto name = [&](const char* what, const std::string& where, const std::string& given) {
      line(std::string("\"name\":\"") + what + "\",\"ph\":\"M\"," + where + ",\"args\":{" + given +
           '}');
    };
    name("process_name", process(), "\"name\":\"rank " + rank + '"');
    name("process_sort_index", process(), "\"sort_index\":" + rank);
    name("thread_name", row(false), "\"name\":\"compute\"");
    name("thread_name", row(true), "\"name\":\"communication\"");
    if (dropped > 0) {
      name("process_labels", process(),
           "\"labels\":\"" + std::to_string(dropped) + " events had no room\"");
    }
  }

  /// The place of event i: "2.0.1", as `describe` numbers layers, and the outermost phase.
  std::string path_of(std::size_t i) const {
    std::string path;
    for (; i != Tracer::none; i = events_[i].within) {
      if (!is_part(events_[i])) continue;
      path.insert(0, std::to_string(events_[i].work.number) + (path.empty() ? "" : "."));
    }
    return path;
  }
  std::string phase_of(std::size_t i) const {
    std::string phase;
    for (; i != Tracer::none; i = events_[i].within) {
      if (events_[i].work.kind == Kind::phase) phase = events_[i].work.name();
    }
    return phase;
  }

  void add(std::size_t i) {
    const Tracer::Event& event = events_[i];
    const Work& work = event.work;
    const bool sends = work.kind == Kind::collective;
    const std::string name = work.name();
    const std::string path = path_of(i);
    std::string title = name;
    std::string args = "\"phase\":" + json_quoted(phase_of(i));
    if (!path.empty()) args += ",\"layer\":" + json_quoted(path);
    if (sends) {
      const Collective& sent = work.collective;
      title = shardwise::name(sent.operation);
      args += ",\"moves\":" + json_quoted(name) + ",\"sends\":" + json_quoted(to_string(sent)) +
              ",\"axis\":" + json_quoted(shardwise::name(sent.axis)) +
              ",\"bytes\":" + std::to_string(sent.bytes_sent(sizes_[sent.axis]));
    } else if (work.kind == Kind::part) {  // of a composition: its layers are long enough
      title = path + ' ' + name.substr(0, name.find('<'));
    } else if (work.kind == Kind::compute && !path.empty()) {
      title = path + ' ' + name;
    }
    constexpr const char* categories[] = {"phase", "part", "compute", "move", "collective"};
    line("\"name\":" + json_quoted(title) + ",\"cat\":\"" +
         categories[static_cast<std::size_t>(work.kind)] + "\",\"ph\":\"X\"," + row(sends) +
         ",\"ts\":" + microseconds(event.begin - zero_) +
         ",\"dur\":" + microseconds(event.end - event.begin) + ",\"args\":{" + args + '}');
  }

  std::span<const Tracer::Event> events_;
  int rank_;
  mesh sizes_;
  std::int64_t zero_;
  std::vector<bool> holds_part_;
  std::string lines_;
};

/// The texts of all ranks in rank order, on the first rank.
template <Communicator C>
std::string gathered(C& ranks, const std::string& text) {
  const auto size = static_cast<std::size_t>(ranks.size());
  const std::vector<std::size_t> ones(size, 1);
  const auto mine = static_cast<std::int64_t>(text.size());
  std::vector<std::int64_t> lengths(size);
  ranks.all_gather(std::span<const std::int64_t>(&mine, 1), std::span(lengths), ones);
  std::vector<std::size_t> counts;
  std::size_t total = 0;
  for (const std::int64_t length : lengths) {
    counts.push_back(static_cast<std::size_t>(length));
    total += counts.back();
  }
  std::string all(ranks.rank() == 0 ? total : 0, ' ');
  ranks.gather(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()),
               std::span(reinterpret_cast<std::uint8_t*>(all.data()), all.size()), counts, 0);
  return all;
}

}  // namespace detail

/// Writes the events of all ranks' tracers to one file, on the first rank; other ranks ignore
/// `path`. A collective, of threads and of processes. Time 0 is the start of the first event of all
/// ranks. A trace has
///
///     rank 0   compute         phases; in them compositions, and in these layers and the
///                              local work of redistributions
///              communication   each collective, its bytes and its layer: those of
///                              the plan, in its order
///
/// Bytes are the sum over the ranks of the group that calls the collective, see
/// `Collective::bytes_sent`: all ranks, or on a mesh those along the `axis` of the event. Ranks on
/// different machines are shifted by the difference of their clocks.
/// throws   data_error on the first rank, if the file cannot be written
template <Communicator C>
void write_trace(const std::filesystem::path& path, C& ranks, const Tracer& tracer) {
  std::int64_t zero = std::numeric_limits<std::int64_t>::max();
  if (!tracer.events().empty()) zero = tracer.events().front().begin;
  const std::int64_t mine = zero;
  ranks.all_reduce(std::span<const std::int64_t>(&mine, 1), std::span(&zero, 1), Reduction::min);
  mesh sizes{.tensor = ranks.size()};
  if constexpr (detail::MeshCommunicator<C>) sizes = ranks.sizes();
  std::string lines = detail::TraceRows(tracer, ranks.rank(), sizes, zero).lines();
  if (ranks.rank() > 0) lines.insert(0, ",\n");
  const std::string all = detail::gathered(ranks, lines);
  if (ranks.rank() != 0) return;
  const std::string text = "{\"traceEvents\":[\n" + all + "\n]}\n";
  detail::File::create(path, "trace").write(0, std::as_bytes(std::span(text)));
}

}  // namespace shardwise
