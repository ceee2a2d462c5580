// .npy files: those that NumPy made, round trips, and every way in which one can be bad.
// The files are those of tests/witness/make_npy.py; with SHARDWISE_KEEP=<folder> ours are left in
// it, and `make_npy.py --check <folder>` reads them with NumPy.

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/interop/npy.hpp"
#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using testing::bytes_of;
using testing::error_of;
using testing::says;
using testing::TemporaryFolder;

namespace {

const std::filesystem::path numpy =
    std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "witness" /
    "values" / "npy";

using Axes = std::vector<Axis>;

/// Reads a file of NumPy, compares its elements with 0, step, 2 step, ..., and writes it again.
template <class T>
void check_made(const std::string& name, const Axes& axes, double step,
                const std::vector<std::uint64_t>& shape) {
  CAPTURE(name);
  const auto tensor = read_npy<T>(numpy / name, axes);
  REQUIRE(detail::extents_of(tensor.global()) == shape);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    CHECK(static_cast<double>(tensor[i]) == static_cast<double>(i) * step);
  }
  const TemporaryFolder temporary("npy");
  const char* keep = std::getenv("SHARDWISE_KEEP");
  const std::filesystem::path folder = keep == nullptr ? temporary.path() : keep;
  write_npy(folder / name, tensor.view());
  CHECK(bytes_of(folder / name) == bytes_of(numpy / name));
  CHECK_FALSE(std::filesystem::exists(folder / (name + ".saving")));
}

/// A file of version 1.0 with this header and four bytes of elements.
std::string with_header(const std::string& text) {
  return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(text.size() & 0xff) +
         static_cast<char>(text.size() >> 8) + text + std::string("\0\0\x80?", 4);
}

std::string with_shape(const std::string& shape) {
  return with_header("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n");
}

std::string repeated(const char* text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string with_descr(const std::string& descr) {
  return with_header("{'descr': " + descr + ", 'fortran_order': False, 'shape': (1,), }\n");
}

struct Row {
  const char* what;
  std::string bytes;
  std::string said;
};

}  // namespace

TEST_CASE("NumPy's files are read, and written again byte for byte") {
  check_made<float>("float32.npy", {Axis::batch, Axis::feature}, 0.5, {2, 3});
  check_made<double>("float64.npy", {Axis::feature}, 0.5, {4});
  check_made<fp16>("float16.npy", {Axis::batch, Axis::height, Axis::width}, 0.5, {2, 2, 2});
  check_made<bf16>("bfloat16.npy", {Axis::batch, Axis::feature}, 0.5, {3, 2});
  check_made<std::int32_t>("int32.npy", {Axis::batch}, 1, {5});
  check_made<std::int64_t>("int64.npy", {Axis::batch, Axis::feature}, 1, {1, 2});
  check_made<std::uint8_t>("uint8.npy", {Axis::batch}, 1, {3});
  check_made<float>("empty.npy", {Axis::batch, Axis::feature}, 0.5, {0, 3});
}

TEST_CASE("a scalar of NumPy") {
  const auto tensor = read_npy<float>(numpy / "scalar.npy", Axes{});
  REQUIRE(tensor.size() == 1);
  CHECK(tensor[0] == 0.5F);
  const TemporaryFolder folder("npy_scalar");
  const char* keep = std::getenv("SHARDWISE_KEEP");
  const auto path = (keep == nullptr ? folder.path() : keep) / std::filesystem::path("scalar.npy");
  write_npy(path, tensor.view());
  CHECK(bytes_of(path) == bytes_of(numpy / "scalar.npy"));
}

TEST_CASE("the other versions of NumPy's format") {
  for (const char* name : {"version2.npy", "version3.npy"}) {
    const NpyHeader header = read_npy_header(numpy / name);
    CHECK(header.dtype == Dtype::float32);
    CHECK(header.shape == std::vector<std::uint64_t>{2, 3});
    CHECK(read_npy<float>(numpy / name, {Axis::batch, Axis::feature})[5] == 2.5F);
  }
}

TEST_CASE("files of NumPy that are refused say what to save instead") {
  const auto refusal = [](const char* name) {
    return error_of([&] { read_npy<float>(numpy / name, {Axis::batch, Axis::feature}); });
  };
  CHECK(says(refusal("fortran.npy"), "data_error", "save numpy.ascontiguousarray(x)"));
  CHECK(says(refusal("big_endian.npy"), "data_error", "type '>f4'"));
  CHECK(says(refusal("complex.npy"), "data_error", "type '<c8'"));
  CHECK(says(refusal("fields.npy"), "data_error", "several fields"));
  CHECK(says(refusal("objects.npy"), "data_error", "type '|O'"));
  CHECK(says(refusal("float64.npy"), "data_error", "holds float64 and was asked for float32"));
  CHECK(says(refusal("missing.npy"), "data_error", "cannot be opened"));
}

TEST_CASE("each rank reads its own part") {
  const Shape global{{Axis::batch, 2}, {Axis::feature, 3}};
  const TemporaryFolder folder("npy_parts");
  for (int ranks : {1, 2, 4}) {
    for (int rank = 0; rank < ranks; ++rank) {
      Tensor<float, Sharded<Axis::feature>> columns(global, {rank, ranks});
      read_npy(numpy / "float32.npy", columns.view());
      for_each_global_run(columns.view(),
                          [&](std::size_t whole, std::size_t local, std::size_t length) {
                            for (std::size_t i = 0; i < length; ++i) {
                              CHECK(columns[local + i] == 0.5F * static_cast<float>(whole + i));
                            }
                          });
    }
  }
  Tensor<float, Invariant> other({{Axis::batch, 3}, {Axis::feature, 2}});
  CHECK(says(error_of([&] { read_npy(numpy / "float32.npy", other.view()); }), "shape_error",
             "has the shape [2, 3] and was asked for as [batch 3, feature 2]"));
  CHECK(says(error_of([&] { read_npy<float>(numpy / "float32.npy", {Axis::batch}); }),
             "shape_error", "has 2 axes, [2, 3], but 1 names"));
}

TEST_CASE("headers of other writers that are good") {
  const std::vector<Row> rows{
      {"other order, other quotes",
       with_header(R"({"shape":(1,),"descr":"<f4","fortran_order":False})"), ""},
      {"white space anywhere",
       with_header(" {\t'descr' :'<f4',\n'fortran_order': False, 'shape' : ( 1 , ) }  \n"), ""},
      {"Python 2", with_shape("(1L,)"), ""},
      {"more axes", with_shape("(1, 1, 1)"), ""},
      {"as many axes as can be", with_shape("(1" + repeated(", 1", 63) + ")"), ""},
      {"no comma behind several", with_shape("(1, 1)"), ""},
  };
  const TemporaryFolder folder("npy_good");
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const NpyHeader header = read_npy_header(folder.write("x.npy", row.bytes));
    CHECK(header.dtype == Dtype::float32);
    CHECK(header.shape.front() == 1);
  }
}

TEST_CASE("hostile files") {
  const std::string good = with_shape("(1,)");
  const auto with_version = [&](char major, char minor) {
    std::string bytes = good;
    bytes[6] = major;
    bytes[7] = minor;
    return bytes;
  };
  const std::vector<Row> rows{
      {"nothing", "", "no .npy file"},
      {"another format", "PK\x03\x04 and what a .npz has", "no .npy file"},
      {"only the beginning", good.substr(0, 9), "no .npy file"},
      {"cut in the header", good.substr(0, 30), "announces a header of"},
      {"cut in the elements", good.substr(0, good.size() - 1), "4 bytes, but holds 3"},
      {"more than the elements", good + "x", "4 bytes, but holds 5"},
      {"version 0", with_version(0, 0), "version 0.0"},
      {"version 4", with_version(4, 0), "version 4.0"},
      {"version 1.1", with_version(1, 1), "version 1.1"},
      {"version 255", with_version('\xff', 0), "version 255.0"},
      {"length of 4 bytes that is none", with_version(2, 0), "announces a header of"},
      {"a header too long", with_header("{" + std::string(20'000, ' ') + "}"), "at most 10000"},
      {"no dictionary", with_header("('<f4', False, (1,))"), "has no '{'"},
      {"not closed", with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)"),
       "has no '}'"},
      {"code behind it",
       with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} or f()"),
       "closing brace"},
      {"a call for a shape", with_shape("exit()"), "has no '('"},
      {"a call in a shape", with_shape("(len('x'),)"), "no number"},
      {"a key twice",
       with_header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"),
       "twice"},
      {"another key",
       with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}"), "key 'x'"},
      {"a key missing", with_header("{'descr': '<f4', 'shape': (1,)}"), "lacks"},
      {"a key without quotes", with_header("{descr: '<f4'}"), "in quotes for a key"},
      {"a quote left open", with_header("{'descr': '<f4}"), "in quotes for descr"},
      {"order that is a number", with_header("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}"),
       "neither True nor False"},
      {"a negative extent", with_shape("(-1,)"), "no number"},
      {"too many axes", with_shape("(1" + repeated(", 1", 64) + ")"), "more than 64 axes"},
      {"an extent in hex", with_shape("(0x1,)"), "has no ')'"},
      {"an extent with a leading zero", with_shape("(01,)"), "no number"},
      {"an extent with a point", with_shape("(1.0,)"), "has no ')'"},
      {"an extent of 2^64", with_shape("(18446744073709551616,)"), "above 2^64"},
      {"an extent of 2^65", with_shape("(36893488147419103233,)"), "above 2^64"},
      {"bytes of 2^64", with_shape("(4611686018427387904,)"), "more than 2^64"},
      {"bytes of 2^64 + 4", with_shape("(4611686018427387905,)"), "more than 2^64"},
      {"a product that wraps", with_shape("(4294967296, 4294967296, 1)"), "more than 2^64"},
      {"a product that wraps, then nothing", with_shape("(4294967296, 4294967296, 0)"),
       "more than 2^64"},
      {"a shape far above the file", with_shape("(1000000000000,)"),
       "4000000000000 bytes, but holds 4"},
      {"a number for a shape", with_shape("1"), "has no '('"},
      {"a number in brackets", with_shape("(1)"), "no tuple"},
      {"a list for a shape", with_shape("[1]"), "has no '('"},
      {"a shape not closed", with_shape("(1,"), "no number"},
      {"an empty shape for four elements", with_shape("(2,)"), "8 bytes, but holds 4"},
      {"a comma alone", with_shape("(,)"), "no number"},
      {"a type of no name", with_descr("''"), "type ''"},
      {"the machine's own order", with_descr("'=f4'"), "type '=f4'"},
      {"half a type", with_descr("'<f'"), "type '<f'"},
      {"a type and more", with_descr("'<f4 '"), "type '<f4 '"},
      {"Python's objects", with_descr("'|O'"), "type '|O'"},
      {"bytes that cannot be shown", with_descr("'<\x1b[2J\xff'"), "type '<?[2J?'"},
      {"a zero byte", with_descr(std::string("'<f4\0'", 6)), "type '<f4?'"},
  };
  const TemporaryFolder folder("npy_hostile");
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const auto path = folder.write("x.npy", row.bytes);
    const std::string text = error_of([&] { read_npy<float>(path, {Axis::batch}); });
    CAPTURE(text);
    CHECK(says(text, "data_error", row.said));
    CHECK(text.find("npy file " + path.string() + ": ") != std::string::npos);
  }
}

TEST_CASE("more axes than a tensor has are refused") {
  const TemporaryFolder folder("npy_axes");
  const auto path = folder.write("x.npy", with_shape("(1, 1, 1, 1, 1, 1, 1)"));
  const Axes seven(7, Axis::feature);
  CHECK(says(error_of([&] { read_npy<float>(path, seven); }), "shape_error", "at most 6"));
}

TEST_CASE("a write that fails leaves the old file and nothing else") {
  const TemporaryFolder folder("npy_write");
  const Tensor<float, Invariant> tensor(Shape{{Axis::feature, 3}});
  const auto nowhere = folder.path() / "missing" / "x.npy";
  CHECK(says(error_of([&] { write_npy(nowhere, tensor.view()); }), "data_error",
             "npy file " + nowhere.string() + ".saving: cannot be created"));

  // A folder in the place of the file: everything goes well but the rename.
  std::filesystem::create_directory(folder.path() / "x.npy");
  CHECK(says(error_of([&] { write_npy(folder.path() / "x.npy", tensor.view()); }), "data_error",
             "cannot be put in its place"));
  CHECK(folder.names() == std::vector<std::string>{"x.npy"});
}
