#pragma once
// A text to learn from: every rank has all of it, and cuts the same batches out of it.

#include <zlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/layout/view.hpp"

namespace example {

/// A character is its byte.
inline constexpr std::size_t characters = 256;

/// The bytes of a file, plain or gzip'd.
/// throws   std::runtime_error if it cannot be read
inline std::string read_text(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose_r);
  std::string text;
  std::array<char, 1 << 16> piece{};
  for (int got = 1; file && got > 0;) {
    got = gzread(file.get(), piece.data(), piece.size());
    if (got < 0) throw std::runtime_error(path + " is damaged");
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  if (text.empty())
    throw std::runtime_error(path +
                             " cannot be read, or is empty; name another file "
                             "with --text, or install Debian's jargon-text");
  return text;
}

/// The text of a file that rank 0 reads. A collective; if it fails, the communicator stops the
/// other ranks.
template <shardwise::Communicator C>
std::string broadcast_text(C& ranks, const std::string& path) {
  std::string text;
  if (ranks.rank() == 0) text = read_text(path);
  std::array<std::int64_t, 1> size{static_cast<std::int64_t>(text.size())};
  ranks.broadcast(std::span<std::int64_t>(size), 0);
  std::vector<std::uint8_t> bytes(text.begin(), text.end());
  bytes.resize(static_cast<std::size_t>(size[0]));
  ranks.broadcast(std::span(bytes), 0);
  return {bytes.begin(), bytes.end()};
}

/// Pieces of a text, and behind each character the next one as its label.
class TextBatches {
 public:
  /// `rows` pieces of `length` characters.
  /// throws   std::runtime_error if the text has no more than `length` characters
  TextBatches(const std::string& text, std::size_t rows, std::size_t length, shardwise::Place place)
      : text_(text),
        shape_{{shardwise::Axis::batch, rows}, {shardwise::Axis::sequence, length}},
        place_(place),
        ids_(rows * length),
        labels_(rows * length) {
    if (text.size() <= length) {
      throw std::runtime_error("the text has " + std::to_string(text.size()) +
                               " characters, and one piece has " + std::to_string(length));
    }
  }

  /// The pieces of a step begin where its random numbers say, which are the same on every rank.
  void choose(const shardwise::RandomStream& random) {
    const std::size_t length = shape_[1].extent(), starts = text_.size() - length;
    for (std::size_t row = 0; row < shape_[0].extent(); ++row) {
      const auto begin = static_cast<std::size_t>(static_cast<double>(random.uniform(row)) *
                                                  static_cast<double>(starts));
      for (std::size_t i = 0; i < length; ++i) {
        ids_[row * length + i] = static_cast<unsigned char>(text_[begin + i]);
        labels_[row * length + i] = static_cast<unsigned char>(text_[begin + i + 1]);
      }
    }
  }

  ///@{
  /// [rows, length].
  shardwise::View<const std::int32_t, shardwise::Invariant> ids() const {
    return {ids_.data(), shape_, place_};
  }
  shardwise::View<const std::int32_t, shardwise::Invariant> labels() const {
    return {labels_.data(), shape_, place_};
  }
  ///@}

 private:
  const std::string& text_;
  shardwise::Shape shape_;
  shardwise::Place place_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int32_t> labels_;
};

}  // namespace example
