#pragma once
// What is written: one row for each way to split a problem.

#include <array>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "split/engine.hpp"
#include "split/shapes.hpp"

namespace split {

/// A row, its members in the order of `columns`. No text in it holds a comma or a quote.
using Row = nlohmann::ordered_json;

/// Names end in their unit: us microseconds of one call, p10 and p90 percentiles of the rounds.
inline constexpr std::array<std::string_view, 37> columns{"name",
                                                          "rows",
                                                          "in",
                                                          "out",
                                                          "of",
                                                          "ranks",
                                                          "dtype",
                                                          "backend",
                                                          "communicator",
                                                          "split",
                                                          "wins",
                                                          "total_us",
                                                          "total_us_p10",
                                                          "total_us_p90",
                                                          "product_us",
                                                          "product_us_p10",
                                                          "product_us_p90",
                                                          "communication_us",
                                                          "communication_us_p10",
                                                          "communication_us_p90",
                                                          "exposed_us",
                                                          "exposed_us_p10",
                                                          "exposed_us_p90",
                                                          "speedup",
                                                          "speedup_p10",
                                                          "speedup_p90",
                                                          "efficiency",
                                                          "gflops",
                                                          "peak_gflops",
                                                          "of_peak",
                                                          "planned_bytes",
                                                          "counted_bytes",
                                                          "wire_bytes",
                                                          "parameter_bytes",
                                                          "memory_bytes",
                                                          "load",
                                                          "cpu"};

/// The first so many columns say what was measured; without the split, they name its group, whose
/// rows were measured in turns and are written together.
inline constexpr std::size_t group_columns = 9;
inline constexpr std::size_t rows_of_group = 3;

/// What the machine was like.
struct Machine {
  std::string cpu;
  double load = 0;  ///< of the last minute, before the group was measured
  double peak = 0;  ///< operations in a second, of as many ranks
};

/// One group of rows to come.
struct Job {
  NamedShape shape;
  bool is_pair = false;
  int ranks = 1;
  const Engine* engine = nullptr;

  Problem problem() const { return {shape.rows, shape.in, shape.out, is_pair}; }

  /// The columns that name the group.
  Row group() const {
    Row row;
    row["name"] = shape.name;
    row["rows"] = shape.rows;
    row["in"] = shape.in;
    row["out"] = shape.out;
    row["of"] = is_pair ? "pair" : "layer";
    row["ranks"] = ranks;
    row["dtype"] = engine->dtype;
    row["backend"] = engine->backend;
    row["communicator"] = communicator;
    return row;
  }
};

/// `value` with four digits behind the point, so that files are no longer than they have to be.
inline double rounded(double value) { return std::round(value * 1e4) / 1e4; }

inline void add_spread(Row& row, const std::string& name, const bench::Spread& spread,
                       double unit) {
  row[name] = rounded(spread.median * unit);
  row[name + "_p10"] = rounded(spread.p10 * unit);
  row[name + "_p90"] = rounded(spread.p90 * unit);
}

inline std::vector<Row> rows_of(const Job& job, const std::vector<Measured>& ways,
                                const Machine& machine) {
  std::size_t fastest = 0;
  for (std::size_t i = 1; i < ways.size(); ++i)
    if (ways[i].speedup.median > ways[fastest].speedup.median) fastest = i;
  std::vector<Row> rows;
  for (const Measured& way : ways) {
    Row row = job.group();
    row["split"] = way.split;
    row["wins"] = &way == &ways[fastest] ? 1 : 0;
    add_spread(row, "total_us", way.total, 1e6);
    add_spread(row, "product_us", way.product, 1e6);
    add_spread(row, "communication_us", way.communication, 1e6);
    add_spread(row, "exposed_us", way.exposed, 1e6);
    add_spread(row, "speedup", way.speedup, 1);
    const double speed = job.problem().operations() / way.total.median;
    row["efficiency"] = rounded(way.speedup.median / job.ranks);
    row["gflops"] = rounded(speed / 1e9);
    row["peak_gflops"] = rounded(machine.peak / 1e9);
    row["of_peak"] = rounded(speed / machine.peak);
    row["planned_bytes"] = way.planned;
    row["counted_bytes"] = way.counted;
    row["wire_bytes"] = way.on_the_wire;
    row["parameter_bytes"] = way.parameters;
    row["memory_bytes"] = way.memory;
    row["load"] = rounded(machine.load);
    row["cpu"] = machine.cpu;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace split
