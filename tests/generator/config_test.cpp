#include "generator/config.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "ce/error.hpp"
#include "generator/variant.hpp"
#include "templates/arguments.cuh"
#include "tests/seed.hpp"

namespace ce::generator {
namespace {

TEST(Config, TextFormRoundTripsOverEveryPointOfEverySpace) {
  std::set<std::string> texts;
  for (const Variant& variant : variants())
    for (const Config& config : variant.points()) {
      SCOPED_TRACE(to_text(config));
      EXPECT_EQ(parse_config(to_text(config)), config);
      EXPECT_TRUE(texts.insert(to_text(config)).second) << "two points of one text";
    }
}

TEST(Config, TextFormIsWhatPeopleType) {
  const std::pair<Config, const char*> configs[] = {
      {{.variant = "warp", .warps = 4, .vec = 4, .lanes = 16, .rows = 2, .load = 2, .store = 1},
       "warp/warps=4,vec=4,lanes=16,rows=2,load=cs,store=cg"},
      {{.variant = "packed", .warps = 4, .rows = 4, .load = 3, .store = 2},
       "packed/warps=4,rows=4,load=evict_last,store=cs"},
      {{.variant = "transpose", .warps = 4, .vec = 8, .lanes = 2, .load = 3},
       "transpose/warps=4,vec=8,lanes=2,load=evict_last"},
      {{.variant = "block", .warps = 16, .vec = 8, .load = 2, .store = 2},
       "block/warps=16,vec=8,load=cs,store=cs"},
      {{.variant = "two_pass", .warps = 8, .vec = 8, .tile = 4096, .load = 1, .store = 3},
       "two_pass/warps=8,vec=8,tile=4096,load=cg,store=wt"},
      {{.variant = "cluster", .warps = 16, .vec = 8, .tile = 2048, .cluster = 4, .store = 1},
       "cluster/warps=16,vec=8,tile=2048,cluster=4,load=ca,store=cg"},
      {{.variant = "pipeline", .warps = 17, .vec = 8, .tile = 4096, .cluster = 2, .stages = 4},
       "pipeline/warps=17,vec=8,tile=4096,cluster=2,stages=4,load=ca,store=wb"},
      {{.variant = "pipeline_decoupled",
        .warps = 26,
        .reducers = 16,
        .vec = 8,
        .tile = 8192,
        .cluster = 4,
        .stages = 4,
        .hold = 4},
       "pipeline_decoupled/warps=26,reducers=16,vec=8,tile=8192,cluster=4,stages=4,hold=4,load=ca,store=wb"},
      {{.variant = "persistent", .warps = 16, .vec = 8, .unroll = 3, .cluster = 2, .stages = 4, .hold = 9},
       "persistent/warps=16,vec=8,unroll=3,cluster=2,stages=4,hold=9,load=ca,store=wb"},
      {{.variant = "persistent_reduce",
        .warps = 13,
        .vec = 8,
        .unroll = 4,
        .cluster = 1,
        .stages = 6,
        .load = 3},
       "persistent_reduce/warps=13,vec=8,unroll=4,cluster=1,stages=6,load=evict_last"},
      {{.variant = "split", .warps = 8, .vec = 8, .split = 16, .load = 1},
       "split/warps=8,vec=8,split=16,load=cg,store=wb"},
      {{.variant = "elementwise", .warps = 4, .vec = 8, .tile = 1024, .store = 2},
       "elementwise/warps=4,vec=8,tile=1024,load=ca,store=cs"},
      {{.variant = "strided", .warps = 4, .tile = 8, .load = 1}, "strided/warps=4,tile=8,load=cg,store=wb"},
      {{.variant = "merge", .warps = 2}, "merge/warps=2"},
      {{.variant = "bandwidth", .warps = 8, .vec = 8, .tile = 8192, .load = 2, .store = 2},
       "bandwidth/warps=8,vec=8,tile=8192,load=cs,store=cs"},
  };
  for (const auto& [config, text] : configs) {
    EXPECT_EQ(to_text(config), text);
    EXPECT_EQ(parse_config(text), config);
  }
}

struct Malformed {
  const char* text;
  const char* expected;  ///< part of what the error says
};

TEST(Config, MalformedTextNamesThePart) {
  const Malformed cases[] = {
      {"", "one of warp, packed, transpose, block"},
      {"nothing/warps=1", "one of warp, packed, transpose, block"},
      {"block", "\"warps=\" too"},
      {"block/warps=16,vec=8,load=cs", "\"store=\" too"},
      {"block/vec=8,warps=16,load=cs,store=cs", "\"warps=\" instead of \"vec\""},
      {"block/warps=0,vec=8,load=cs,store=cs", "a value of \"warps\""},
      {"block/warps=x,vec=8,load=cs,store=cs", "not \"x\""},
      {"block/warps=16,vec=8,load=wb,store=cs", "a value of \"load\""},
      {"block/warps=16,vec=8,load=cs,store=cs,more=1", "nothing after"},
      {"block/warps=-4,vec=8,load=cs,store=cs", "not \"-4\""},
      {"block/warps=4 ,vec=8,load=cs,store=cs", "not \"4 \""},
      {"block/warps=99999999999,vec=8,load=cs,store=cs", "a value of \"warps\""},
      {"block/warps=33,vec=8,load=cs,store=cs", "a value of \"warps\""},
      {"block/warps=08,vec=8,load=cs,store=cs", "expected \"block/warps=8,"},
      {"block/warps=16,vec=8,load=cs,store=cs,", "store=cs\""},
      {"warp/warps=4,vec=4,rows=2,load=cs,store=cg", "\"lanes=\" instead of \"rows\""},
      {"warp/warps=4,vec=4,lanes=16,load=cs,store=cg", "\"rows=\" instead of \"load\""},
      {"split/warps=8,vec=8,load=ca,store=wb", "\"split=\" instead of \"load\""},
      {"pipeline/warps=17,vec=8,tile=4096,cluster=2,stages=all,load=ca,store=wb", "a value of \"stages\""},
  };
  for (const auto& [text, expected] : cases) try {
      const Config config = parse_config(text);
      ADD_FAILURE() << text << " was taken for " << to_text(config);
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << text << ": " << error.what();
    }
}

constexpr Limits smallest{.capability = 75};
constexpr Limits before_clusters{.capability = 80};
constexpr Limits largest{.capability = 90, .shared_bytes_per_block = 227 * 1024};

/// Every operation that runs whatever the rows; their number and that of columns are still to be set.
std::vector<Problem> operations() {
  return {{.operation = Operation::softmax},
          {.operation = Operation::log_softmax},
          {.operation = Operation::softmax_backward},
          {.operation = Operation::log_softmax_backward},
          {.operation = Operation::cross_entropy},
          {.operation = Operation::cross_entropy, .gradient = true},
          {.operation = Operation::cross_entropy, .gradient = true, .probabilities = true},
          {.operation = Operation::cross_entropy_backward, .gradient = true},
          {.operation = Operation::cross_entropy_shard},
          {.operation = Operation::cross_entropy_shard_backward, .gradient = true}};
}

/// In every dtype and layout.
std::vector<Problem> problems_of(std::int64_t rows, std::int64_t columns) {
  std::vector<Problem> problems;
  for (Problem problem : operations()) {
    problem.rows = rows;
    problem.columns = columns;
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      problem.dtype = dtype;
      problem.strided = false;
      for (const Alignment alignment : alignments) {
        problem.alignment = alignment;
        if (alignment != Alignment::dense || can_be_dense(problem)) problems.push_back(problem);
      }
      problem.alignment = Alignment::vector;
      problem.strided = true;
      problems.push_back(problem);
    }
  }
  return problems;
}

/// Cross entropy with options that take much arithmetic or shared memory.
std::vector<Problem> costly_problems_of(std::int64_t rows, std::int64_t columns) {
  Problem problem{.operation = Operation::cross_entropy,
                  .dtype = DType::bf16,
                  .gradient = true,
                  .has = {.softcap = true},
                  .rows = rows,
                  .columns = columns};
  std::vector<Problem> problems{problem};
  problem.dtype = DType::f32;
  problems.push_back(problem);
  problem.has.smoothing = problem.weights = true;
  problems.push_back(problem);
  return problems;
}

/// What the constraints say is also what the design of the variants asks for.
void expect_possible(const Config& config, const Problem& problem, const Limits& limits) {
  const int threads = 32 * config.warps;
  EXPECT_LE(threads, 1024);
  EXPECT_LE(config.vec * size_of(problem.dtype), 16);
  EXPECT_LE(variant(config.variant).shared_bytes(config, problem), limits.shared_bytes_per_block);
  EXPECT_GT(variant(config.variant).blocks(config, problem), 0);
  EXPECT_EQ(config.variant == "strided", problem.strided);
  if (problem.alignment == Alignment::element) {
    EXPECT_EQ(config.vec, 1);
  }
  if (!has_output(problem)) {
    EXPECT_EQ(config.store, 0) << "nothing is stored per element";
  }
  if (limits.capability < 80) {
    EXPECT_NE(load_names[static_cast<std::size_t>(config.load)], "evict_last") << "policies of L2 need sm_80";
  }
  if (config.cluster > 0) {
    EXPECT_GE(limits.capability, 90);
    EXPECT_EQ(config.vec * size_of(problem.dtype), 16) << "bulk copies move 16 bytes";
  }
  const std::int64_t row_bytes = problem.columns * size_of(problem.dtype) * inputs(problem);
  if (config.variant == "warp") {
    EXPECT_LE(config.rows * row_bytes / config.lanes, 4 * 255) << "the rows do not fit into the registers";
    EXPECT_LE(config.vec, problem.columns) << "the lanes have no vector";
  }
  if (config.variant == "warp" &&
      (!starts_on_vectors(problem, config.vec) || problem.columns % config.vec != 0)) {
    EXPECT_GE(config.lanes, 2 * config.vec - 1)
        << "prologue and epilogue of a row take a lane for each element";
  }
  if (config.variant == "packed") {
    EXPECT_EQ(problem.alignment, Alignment::dense) << "rows that do not follow each other";
    EXPECT_LE(config.rows * row_bytes, 4 * 64) << "the rows do not fit into the registers";
    EXPECT_GE(config.rows * problem.columns * size_of(problem.dtype), 4) << "less than a word for each lane";
  }
  if (config.variant == "transpose") {
    EXPECT_TRUE(starts_on_vectors(problem, config.vec)) << "rows that are copied from elsewhere";
    EXPECT_EQ(problem.columns % (config.vec * config.lanes), 0) << "lanes without a vector";
    EXPECT_FALSE(has_output(problem));
  }
  if (config.variant == "block") {
    EXPECT_LE(row_bytes, 4 * 65536) << "the row does not fit into the registers";
  }
  if (config.variant == "two_pass" || config.variant == "elementwise") {
    EXPECT_EQ(config.tile % (threads * config.vec), 0);
  }
  if (config.variant == "split") {
    EXPECT_LE(problem.rows, 256) << "rows enough for the whole GPU";
    EXPECT_LE(rows_bucket(problem.rows) * config.split, most_split_blocks)
        << "other rows of the bucket have no memory for their parts";
  }
  if (config.variant == "elementwise") {
    EXPECT_FALSE(reduces(problem));
  }
  if (config.variant == "pipeline" || config.variant == "pipeline_decoupled" ||
      config.variant == "persistent") {
    EXPECT_TRUE(has_output(problem));
  }
  if (config.variant == "pipeline") {
    EXPECT_FALSE(has_costly_options(problem));
  }
  if (config.variant == "pipeline_decoupled") {
    EXPECT_TRUE(has_costly_options(problem));
    EXPECT_LT(config.reducers, config.warps - 2);
  }
  if (config.variant == "persistent_reduce") {
    EXPECT_FALSE(has_output(problem));
  }
}

/// The constraints are what keeps a compiler from being asked for nonsense.
TEST(Space, ConstraintsRemoveImpossiblePoints) {
  std::set<std::string> seen;
  for (const Limits& limits : {smallest, before_clusters, largest})
    for (const auto& [rows, columns] : {std::pair{64, 1},
                                        {64, 10},
                                        {64, 31},
                                        {4096, 128},
                                        {64, 1000},
                                        {64, 4096},
                                        {300, 50257},
                                        {4, 262144},
                                        {33, 262144}}) {
      std::vector<Problem> problems = problems_of(rows, columns);
      for (const Problem& costly : costly_problems_of(rows, columns)) problems.push_back(costly);
      for (const Problem& problem : problems)
        for (const Config& config : space(problem, limits)) {
          expect_possible(config, problem, limits);
          seen.insert(config.variant);
          if (testing::Test::HasFailure()) FAIL() << title(problem) << ": " << to_text(config);
        }
    }
  EXPECT_EQ(seen.size(), variants().size() - 2) << "all but bandwidth, and merge, which reads no rows";
}

TEST(Space, AValueThatNoAxisHasIsNamedAsSuch) {
  const Problem problem{.operation = Operation::softmax, .dtype = DType::bf16, .rows = 64, .columns = 1000};
  EXPECT_EQ(why_not(parse_config("block/warps=4,vec=8,load=ca,store=wb"), problem, largest), std::nullopt);
  EXPECT_EQ(why_not(parse_config("block/warps=5,vec=8,load=ca,store=wb"), problem, largest),
            "the space of block does not contain it");
}

/// People may ask for the source of any config that can be written.
TEST(Space, OfConfigsThatAreRejectedThereIsAnAnswerToo) {
  const Problem gradient{.operation = Operation::cross_entropy_backward,
                         .dtype = DType::bf16,
                         .gradient = true,
                         .rows = 64,
                         .columns = 1000};
  const Config config = parse_config("elementwise/warps=1,vec=8,tile=4,load=ca,store=wb");
  EXPECT_TRUE(variant("elementwise").rejects(config, gradient, largest));
  EXPECT_EQ(variant("elementwise").blocks(config, gradient), 64 * 132)
      << "a vector each: 125, and up to 7 beside";
}

/// Also on the smallest GPU and the host device, whatever is asked.
TEST(Space, IsNeverEmpty) {
  const std::uint64_t seed = test::test_seed();
  std::size_t number = 0;
  for (std::int64_t columns = 1; columns < (1 << 30); columns = columns * 5 / 2 + 1)
    for (const Problem& problem : problems_of(4096, columns))
      for (const Limits& limits : {smallest, Limits{}})
        if (test::is_drawn(seed, number++, 7)) {
          EXPECT_FALSE(space(problem, limits).empty()) << title(problem);
        }
}

/// Elsewhere a lane would read rows that do not begin where it looks for them.
TEST(Space, HasPackedRowsWhereTheyAreDense) {
  const auto packed = [](const Problem& problem) {
    const std::vector<Config> configs = space(problem, largest);
    std::set<int> rows;
    for (const Config& config : configs)
      if (config.variant == "packed") rows.insert(config.rows);
    return rows;
  };
  using Rows = std::set<int>;
  Problem problem{.dtype = DType::bf16, .alignment = Alignment::dense, .rows = 4096, .columns = 10};
  EXPECT_EQ(packed(problem), (Rows{1, 2, 4, 8}));
  problem.columns = 2;
  EXPECT_EQ(packed(problem), (Rows{1, 2, 4, 8}));
  problem.columns = 1;
  EXPECT_EQ(packed(problem), (Rows{2, 4, 8})) << "a lane would move 2 bytes";
  problem.columns = 47;
  EXPECT_EQ(packed(problem), (Rows{1, 2}));
  problem.columns = 101;
  EXPECT_EQ(packed(problem), Rows{});
  problem.columns = 10;
  for (const Alignment other : {Alignment::vector, Alignment::shifted, Alignment::element}) {
    problem.alignment = other;
    EXPECT_EQ(packed(problem), Rows{}) << name(other);
    EXPECT_TRUE(why_not(parse_config("packed/warps=4,rows=4,load=ca,store=wb"), problem, largest));
  }
  problem.alignment = Alignment::dense;
  problem.operation = Operation::cross_entropy;
  EXPECT_EQ(packed(problem), Rows{});
}

TEST(Space, HasClustersOf16ForRowsThat8BlocksCannotHold) {
  const auto widest = [](std::string_view variant, Operation operation, std::int64_t columns) {
    int blocks = 0;
    for (const Config& config : space({.operation = operation, .rows = 64, .columns = columns}, largest))
      if (config.variant == variant) blocks = std::max(blocks, config.cluster);
    return blocks;
  };
  for (const char* variant : {"cluster", "pipeline"}) {
    EXPECT_EQ(widest(variant, Operation::softmax, 262144), 8) << variant;
    EXPECT_EQ(widest(variant, Operation::softmax_backward, 262144), 16) << variant;
    EXPECT_EQ(widest(variant, Operation::softmax, 524288), 16) << variant;
  }
  // Registers hold a part of the row, too.
  EXPECT_EQ(widest("persistent", Operation::softmax_backward, 262144), 8);
  EXPECT_EQ(widest("persistent", Operation::softmax, 524288), 8);
}

TEST(Space, NamesTheAxesThatTheProductPromises) {
  std::map<std::string, std::set<std::string>> values;
  for (const Variant& variant : variants())
    if (variant.name != "bandwidth")
      for (const Config& config : variant.points())
        for (const Axis* axis : variant.axes())
          values[std::string(axis->name)].insert(value_text(*axis, config.*axis->value));
  const auto has = [&](const char* axis, const std::set<std::string>& some) {
    return std::ranges::includes(values[axis], some);
  };
  EXPECT_EQ(values.size(), axes().size());
  EXPECT_EQ(values["load"], (std::set<std::string>{"ca", "cg", "cs", "evict_last"}));
  EXPECT_EQ(values["store"], (std::set<std::string>{"wb", "cg", "cs", "wt"}));
  EXPECT_EQ(values["vec"], (std::set<std::string>{"1", "2", "4", "8"}));
  EXPECT_TRUE(has("warps", {"1", "16", "2", "32", "4", "8"}));
  EXPECT_TRUE(has("tile", {"1024", "2048", "256", "4096", "512", "8192"}));
  EXPECT_TRUE(has("lanes", {"1", "16", "2", "32", "4", "8"}));
  EXPECT_TRUE(has("rows", {"1", "2"}));
  EXPECT_TRUE(has("split", {"128", "16", "2", "32", "4", "64", "8"}));
  EXPECT_TRUE(has("cluster", {"1", "2", "4", "8"}));
}

/// Which variants there are for a problem follows from the problem alone. Others than those named may serve it, too.
TEST(Variants, ServeWhatTheyAreFor) {
  using Names = std::initializer_list<const char*>;
  const auto expect = [](const Problem& problem, const Names& serving, const Names& others) {
    SCOPED_TRACE(title(problem));
    for (const char* name : serving) EXPECT_TRUE(variant(name).serves(problem)) << name;
    for (const char* name : others) EXPECT_FALSE(variant(name).serves(problem)) << name;
  };
  const auto expect_alone = [](const Problem& problem, std::string_view name) {
    for (const Variant& any : variants())
      EXPECT_EQ(any.serves(problem), any.name == name) << any.name << " and " << title(problem);
  };
  for (Problem problem : operations()) {
    if (!is_cross_entropy(problem.operation))
      expect(problem, {"warp", "packed", "block", "two_pass", "cluster", "pipeline", "persistent", "split"},
             {"transpose", "pipeline_decoupled", "persistent_reduce", "elementwise", "strided", "bandwidth"});
    else if (!reduces(problem))
      expect(problem, {"warp", "elementwise"}, {"packed", "transpose", "block", "two_pass", "pipeline"});
    else if (has_output(problem))
      expect(problem, {"warp", "block", "two_pass", "cluster", "pipeline", "persistent", "split"},
             {"packed", "transpose", "pipeline_decoupled", "persistent_reduce", "elementwise"});
    else
      expect(
          problem,
          {"warp", "transpose", "block", "two_pass", "cluster", "persistent", "persistent_reduce", "split"},
          {"packed", "pipeline", "pipeline_decoupled", "elementwise"});
    problem.strided = true;
    expect_alone(problem, "strided");
  }
  Problem capped{.operation = Operation::cross_entropy, .gradient = true, .has = {.softcap = true}};
  expect(capped, {"pipeline_decoupled", "cluster"}, {"pipeline", "persistent"});
  capped.gradient = false;
  expect(capped, {"persistent_reduce", "transpose"}, {"pipeline_decoupled", "persistent"});
  Problem weighed{
      .operation = Operation::cross_entropy, .gradient = true, .weights = true, .has = {.smoothing = true}};
  expect(weighed, {"pipeline_decoupled", "persistent"}, {"pipeline"});
  weighed.has.smoothing = false;  // one weight a row
  expect(weighed, {"pipeline", "persistent"}, {"pipeline_decoupled"});
  for (const Operation ceiling : {Operation::copy, Operation::read, Operation::add})
    expect_alone({.operation = ceiling}, "bandwidth");
  expect_alone({.operation = Operation::cross_entropy_merge}, "merge");
}

/// Whatever the columns of the others: each rank is to have a kernel.
TEST(Space, OfRanksThatExchangeHasConfigsForAllButNarrowRows) {
  Problem problem{.operation = Operation::cross_entropy_exchange, .gradient = true, .rows = 4096};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t columns :
         {2048, 2056, 2600, 3000, 4099, 5000, 8000, 10240, 16000, 32064, 50257, 65536, 131072, 262144})
      for (const Alignment alignment : {Alignment::vector, Alignment::shifted}) {
        problem.dtype = dtype;
        problem.columns = columns;
        problem.alignment = alignment;
        const std::vector<Config> configs = space(problem, largest);
        EXPECT_FALSE(configs.empty()) << title(problem);
        for (const Config& config : configs) EXPECT_EQ(config.variant, "pipeline_decoupled");
      }
  EXPECT_TRUE(space(problem, before_clusters).empty());
  problem.alignment = Alignment::element;
  EXPECT_TRUE(space(problem, largest).empty());
  problem.alignment = Alignment::vector;
  problem.strided = true;
  EXPECT_TRUE(space(problem, largest).empty());
  problem.strided = false;
  problem.columns = 1000;
  EXPECT_TRUE(space(problem, largest).empty());
}

TEST(Variants, AnUnknownNameListsTheKnown) {
  try {
    (void)variant("whatever");
    FAIL();
  } catch (const InvalidArgument& error) {
    std::string known;
    for (const Variant& any : variants()) known += (known.empty() ? "" : ", ") + std::string(any.name);
    EXPECT_EQ(std::string(error.what()), "variant is \"whatever\"; expected one of " + known);
  }
}

}  // namespace
}  // namespace ce::generator
