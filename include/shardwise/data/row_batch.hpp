#pragma once
// Batches of rows that are in a program's own memory, and the loop over those of an epoch.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <tuple>
#include <vector>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

namespace detail {

/// Whether L is SamplesOverMesh<Invariant, Cut>.
template <class L>
inline constexpr bool is_of_samples_over_mesh = false;
template <MeshLayout L>
inline constexpr bool is_of_samples_over_mesh<L> =
    std::same_as<L, SamplesOverMesh<Invariant, axis_cut_by<along_t<L, MeshAxis::context>>>>;

}  // namespace detail

/// Copies chosen rows of the caller's memory together, as a tensor for a model:
///
///     RowBatch<double> x(inputs, {{Axis::feature, 3}}, place_of(ranks));  // inputs: a std::vector
///     RowBatch<std::int32_t> labels(of_inputs, {}, place_of(ranks));     // one number a row
///     train_step(model, x.gather(batch), labels.gather(batch), loss, optimizer);
///
///     rows per rank   [count, ...], row-major; all ranks have all of them
///     gives           [batch, ...]: L is Invariant, or Sharded<Axis::batch> for the rank's block,
///                     or on a mesh SamplesOverMesh<Invariant, Cut> for the rank's slice; where
///                     `context` has several ranks, a row must have the axis Cut, by default
///                     sequence, unless that is batch:
///
///     RowBatch<double, SamplesOverMesh<Invariant>> x(inputs, {{Axis::feature, 3}}, ranks.place());
///
/// The rows stay the caller's, must outlive this, and may change between calls.
template <Element T, Layout L = Invariant>
class RowBatch {
  static_assert(std::same_as<L, Invariant> || std::same_as<L, Sharded<Axis::batch>> ||
                    detail::is_of_samples_over_mesh<L>,
                "a batch is Invariant, which is whole on every rank, or Sharded<Axis::batch>, or "
                "on a mesh SamplesOverMesh<Invariant>: redistribute it to any other layout.");

 public:
  /// `row` is the shape of one row.
  /// throws   shape_error if `rows` is not a whole number of such rows, or if rows cannot be cut
  RowBatch(std::span<const T> rows, const Shape& row, const place_t<L>& place)
      : rows_(rows), place_(place), size_(row.elements()) {
    shape_.append({Axis::batch, 0});
    for (const Dim& dim : row) shape_.append(dim);
    find_part(row);
    if (size_ > 0 && rows.size() % size_ == 0) return;
    throw shape_error({"rows of a batch: ", rows.size(),
                       " elements are not a whole number of rows ", row, " of ", size_,
                       ": look at the size of the memory, or at that shape"});
  }

  /// Rows that would be gone when they are read.
  RowBatch(std::vector<T>&& rows, const Shape& row, const place_t<L>& place) = delete;

  /// The number of rows to choose from.
  std::size_t count() const { return rows_.size() / size_; }

  /// The rows of a batch, valid until the next call.
  /// throws   argument_error for the number of a row that is not there
  View<const T, L> gather(const SampleBatch& batch) {
    const auto chosen = chosen_of(batch);
    memory_.resize(chosen.size() * planes_ * part_.size);
    auto next = memory_.begin();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      require(chosen[i]);
      for (std::size_t plane = 0; plane < planes_; ++plane) {
        const std::size_t first = chosen[i] * size_ + plane * (size_ / planes_) + part_.offset;
        next = std::copy_n(rows_.begin() + static_cast<std::ptrdiff_t>(first), part_.size, next);
      }
    }
    shape_[0].units = batch.whole.size();
    return {std::span<const T>(memory_), shape_, place_};
  }

 private:
  /// Finds the elements of each row that the rank has.
  void find_part(const Shape& row) {
    part_ = {0, size_};
    if constexpr (detail::MeshLayout<L>) {
      using Cut = detail::along_t<L, MeshAxis::context>;
      const Place& context = place_[MeshAxis::context];
      if (context.size == 1 || Cut::axis == Axis::batch) return;
      const std::size_t cut = Cut::axis == Axis::sequence ? detail::sequence_position(row)
                                                          : detail::split_position<Cut>(row);
      const std::size_t of_unit = row.elements(cut + 1, row.rank());
      const Interval units = block_of(row[cut], context);
      planes_ = row.elements(0, cut);
      part_ = {units.offset * of_unit, units.size * of_unit};
    }
  }

  /// The rows of a batch of which the rank has a part.
  std::span<const std::uint32_t> chosen_of(const SampleBatch& batch) const {
    if constexpr (detail::MeshLayout<L>) {
      if (detail::along_t<L, MeshAxis::context>::axis == Axis::batch) {
        const Interval mine = block_of(batch.mine.size(), place_[MeshAxis::context]);
        return batch.mine.subspan(mine.offset, mine.size);
      }
    }
    return std::same_as<L, Invariant> ? batch.whole : batch.mine;
  }

  void require(std::size_t row) const {
    if (row < count()) return;
    throw argument_error({"rows of a batch: row ", row, " was chosen, but there are ", count(),
                          ", numbered from 0: make the sampler for as many"});
  }

  std::span<const T> rows_;
  place_t<L> place_;
  std::size_t size_;        // of one row
  std::size_t planes_ = 1;  // of a row, of each of which the rank has a part
  Interval part_{};         // of each plane
  Shape shape_;
  std::vector<T> memory_;
};

/// The batches that are left of a sampler's epoch, each a std::tuple of what every one of Rows
/// gathers for it:
///
///     for (const auto& [in, target] : EpochBatches(sampler, x, y)) {
///       const double of_batch = train_step(model, in, target, MeanSquaredError{}, optimizer);
///       loss.add(of_batch, in.global()[0].units);
///     }
///
/// The sampler goes on as the loop does. Views are valid until the next batch. On a device, copy
/// them by `model.to_device`.
template <class... Rows>
class EpochBatches {
  static_assert(sizeof...(Rows) > 0,
                "EpochBatches gathers rows: give one or more behind the sampler.");

 public:
  /// All of these must outlive the loop.
  /// throws   argument_error if they say by `count()` that they have unlike numbers of rows
  EpochBatches(DistributedSampler& sampler, Rows&... rows) : sampler_(sampler), rows_(rows...) {
    if constexpr ((requires { rows.count(); } && ...))
      require_alike({static_cast<std::size_t>(rows.count())...});
  }

  /// Samples of these batches, over all ranks.
  std::size_t samples() const { return sampler_.samples_left(); }

  /// Goes once over the batches, in a range-based `for`; it is no iterator of the standard library.
  class Iterator {
   public:
    /// At the first batch that is left.
    explicit Iterator(EpochBatches& of) : of_(of), left_(of.sampler_.batches_left()) { take(); }

    /// The batch: valid until `++`.
    auto operator*() const {
      return std::apply([this](auto&... rows) { return std::tuple(rows.gather(batch_)...); },
                        of_.rows_);
    }
    /// The next batch.
    Iterator& operator++() {
      --left_;
      take();
      return *this;
    }
    /// Whether there is no further batch.
    bool operator==(std::default_sentinel_t) const { return left_ == 0; }

   private:
    void take() {
      if (left_ > 0) batch_ = of_.sampler_.next();
    }

    EpochBatches& of_;
    std::size_t left_;
    SampleBatch batch_{};
  };

  ///@{
  /// For a loop over the range.
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }
  ///@}

 private:
  static void require_alike(const std::array<std::size_t, sizeof...(Rows)>& counts) {
    const auto fewest = std::ranges::min_element(counts), most = std::ranges::max_element(counts);
    if (*fewest == *most) return;
    throw argument_error({"EpochBatches: of the ", counts.size(),
                          " given behind the sampler, number ", fewest - counts.begin() + 1,
                          " has ", *fewest, " rows, but number ", most - counts.begin() + 1,
                          " has ", *most,
                          ": each sample is one row of each, so give memory of as many rows"});
  }

  DistributedSampler& sampler_;
  std::tuple<Rows&...> rows_;
};

}  // namespace shardwise
