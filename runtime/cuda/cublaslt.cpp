#include "runtime/cuda/cublaslt.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "base/environment.hpp"
#include "base/made_once.hpp"
#include "ce/error.hpp"
#include "runtime/cuda/library_paths.hpp"

namespace ce::runtime::cuda {
namespace {

#define CE_CUBLASLT_CHECK(library, call) (library).check((library).call, #call)

/// The first function that the library lacks, or an empty text.
std::string bind(void* library, CublasLt& functions) {
  std::string missing;
  const auto find = [&]<class Function>(Function*& member, const char* symbol) {
    member = reinterpret_cast<Function*>(dlsym(library, symbol));
    if (member == nullptr && missing.empty()) missing = symbol;
  };
#define CE_CUBLASLT_FIND(name) find(functions.name, #name);
  CE_CUBLASLT_FUNCTIONS(CE_CUBLASLT_FIND)
#undef CE_CUBLASLT_FIND
  return missing;
}

std::string path_of(void* library, const std::string& name) {
  const link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || *map->l_name == '\0') return name;
  return map->l_name;
}

/// Appends to the list of attempts why the library cannot be used.
std::unique_ptr<const CublasLt> use(void* library, const std::string& name, std::vector<std::string>& tried) {
  auto functions = std::make_unique<CublasLt>();
  if (const std::string missing = bind(library, *functions); !missing.empty()) {
    tried.push_back(
        fmt::format("{}: it is too old or is not cuBLASLt, because it has no function {}", name, missing));
    return nullptr;
  }
  functions->path = path_of(library, name);
  return functions;
}

CublasLt::Opened open_library() {
  CublasLt::Opened opened;
  // The copy that the process has loaded comes first: its other libraries use it. The library is never closed, since it
  // may leave threads behind.
  const bool chosen = environment_variable(cublaslt_library.variable).has_value();
  for (const std::string& name : chosen ? std::vector<std::string>() : sonames_of(cublaslt_library))
    if (void* loaded = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD); loaded != nullptr)
      if (opened.library = use(loaded, name, opened.tried); opened.library != nullptr) return opened;
  for (const std::string& name : library_paths(cublaslt_library, opened.tried)) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = dlerror();
      opened.tried.push_back(reason == nullptr ? name : reason);
      continue;
    }
    if (opened.library = use(library, name, opened.tried); opened.library != nullptr) return opened;
  }
  return opened;
}

int type_of(DType dtype) {
  return dtype == DType::f16 ? lt::r_16f : dtype == DType::bf16 ? lt::r_16bf : lt::r_32f;
}

/// An object that create() made; it is destroyed with its owner.
template <class T>
class Owned {
 public:
  using Destroy = lt::Status(T*);
  explicit Owned(Destroy* destroy) : destroy_(destroy) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (object_ != nullptr) static_cast<void>(destroy_(object_));
  }
  [[nodiscard]] T* get() const noexcept { return object_; }
  [[nodiscard]] T** out() noexcept { return &object_; }

 private:
  Destroy* destroy_;
  T* object_ = nullptr;
};

/// A product in cuBLASLt's terms. cuBLASLt's matrices are column-major, so a row-major matrix is a transposed one
/// there: the description is of D' = B' A'.
class Description {
 public:
  Description(const CublasLt& library, const Matmul& matmul)
      : any_order(matmul.any_order),
        library_(library),
        product_(library.cublasLtMatmulDescDestroy),
        a_(library.cublasLtMatrixLayoutDestroy),
        b_(library.cublasLtMatrixLayoutDestroy),
        d_(library.cublasLtMatrixLayoutDestroy) {
    CE_CUBLASLT_CHECK(library_, cublasLtMatmulDescCreate(product_.out(), lt::compute_32f, lt::r_32f));
    set(lt::desc_trans_a, matmul.b_transposed ? lt::op_t : lt::op_n);
    set(lt::desc_trans_b, matmul.a_transposed ? lt::op_t : lt::op_n);
    if (matmul.bias) set(lt::desc_epilogue, lt::epilogue_bias);
    const int input = type_of(matmul.input);
    lay(a_, input, matmul.b_transposed, matmul.n, matmul.k, matmul.b_stride);
    lay(b_, input, matmul.a_transposed, matmul.k, matmul.m, matmul.a_stride);
    lay(d_, type_of(matmul.output), false, matmul.n, matmul.m, matmul.d_stride);
  }

  const bool any_order;

  void set_bias(const void* bias) { set(lt::desc_bias_pointer, bias); }
  [[nodiscard]] lt::MatmulDescription* product() const noexcept { return product_.get(); }
  [[nodiscard]] lt::MatrixLayout* a() const noexcept { return a_.get(); }
  [[nodiscard]] lt::MatrixLayout* b() const noexcept { return b_.get(); }
  [[nodiscard]] lt::MatrixLayout* d() const noexcept { return d_.get(); }

 private:
  template <class T>
  void set(int attribute, const T& value) {
    CE_CUBLASLT_CHECK(library_,
                      cublasLtMatmulDescSetAttribute(product_.get(), attribute, &value, sizeof value));
  }
  void lay(Owned<lt::MatrixLayout>& layout, int type, bool transposed, std::int64_t rows,
           std::int64_t columns, std::int64_t stride) {
    if (transposed) std::swap(rows, columns);
    CE_CUBLASLT_CHECK(library_,
                      cublasLtMatrixLayoutCreate(layout.out(), type, static_cast<std::uint64_t>(rows),
                                                 static_cast<std::uint64_t>(columns), stride));
  }

  const CublasLt& library_;
  Owned<lt::MatmulDescription> product_;
  Owned<lt::MatrixLayout> a_, b_, d_;
};

/// An attribute of cuBLASLt's algorithms.
struct Attribute {
  std::string_view word;
  int config;
  std::size_t bytes;
};
constexpr Attribute number{"number", lt::config_id, 4}, reduction{"reduction", lt::config_reduction, 4};
/// The attributes in the text of an algorithm, after its number. The reduction is not among them: the number of splits
/// determines it.
constexpr std::array<Attribute, 7> attributes{{{"tile", lt::config_tile, 4},
                                               {"stages", lt::config_stages, 4},
                                               {"cluster", lt::config_cluster, 2},
                                               {"inner", lt::config_inner_shape, 2},
                                               {"split_k", lt::config_split_k, 4},
                                               {"swizzle", lt::config_swizzling, 4},
                                               {"custom", lt::config_custom, 4}}};

/// The settings of an algorithm, parsed from its text.
struct Settings {
  int number = 0;
  std::array<std::uint32_t, attributes.size()> values{};
  bool in_place = false;  ///< splits are added to the result as they end
};
constexpr std::string_view in_place_word = ",reduction=in_place";

/// \returns nothing for text that names no algorithm
std::optional<Settings> settings_of(std::string_view text) {
  Settings settings;
  const auto take = [&](std::string_view before, auto& number) {
    if (!text.starts_with(before)) return false;
    text.remove_prefix(before.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{}) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  settings.in_place = text.ends_with(in_place_word);
  if (settings.in_place) text.remove_suffix(in_place_word.size());
  if (!take("", settings.number)) return std::nullopt;
  for (std::size_t i = 0; i < attributes.size(); ++i)
    if (!take(fmt::format("{}{}=", i == 0 ? "/" : ",", attributes[i].word), settings.values[i]))
      return std::nullopt;
  return text.empty() ? std::optional(settings) : std::nullopt;
}

class CublasLtMatmuls final : public MatmulLibrary {
 public:
  CublasLtMatmuls(const CublasLt& library, std::shared_ptr<const PrimaryContext> context)
      : library_(library), context_(std::move(context)) {
    const BlockingScope scope(*context_);
    CE_CUBLASLT_CHECK(library_, cublasLtCreate(&handle_));
  }
  CublasLtMatmuls(const CublasLtMatmuls&) = delete;
  CublasLtMatmuls& operator=(const CublasLtMatmuls&) = delete;
  ~CublasLtMatmuls() override {
    try {
      const BlockingScope scope(*context_);
      static_cast<void>(library_.cublasLtDestroy(handle_));
    } catch (const Error&) {
      // After the driver has shut down, or a fault has destroyed the context, the handle is gone, too.
    }
  }

  std::string name() const override { return "cublasLt " + library_.version(); }

  std::vector<MatmulAlgorithm> algorithms(const Matmul& matmul, std::int64_t most_workspace,
                                          int most) override {
    const BlockingScope scope(*context_);
    const Description description(library_, matmul);
    Owned<lt::Preference> preference(library_.cublasLtMatmulPreferenceDestroy);
    CE_CUBLASLT_CHECK(library_, cublasLtMatmulPreferenceCreate(preference.out()));
    const auto prefer = [&](int attribute, const auto& value) {
      CE_CUBLASLT_CHECK(
          library_, cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
    };
    prefer(lt::pref_max_workspace_bytes, static_cast<std::uint64_t>(most_workspace));
    prefer(lt::pref_reduction_scheme_mask,
           lt::reduction_compute_type | (matmul.any_order ? lt::reduction_in_place : 0));
    for (const int attribute : {lt::pref_min_alignment_a, lt::pref_min_alignment_b, lt::pref_min_alignment_c,
                                lt::pref_min_alignment_d})
      prefer(attribute, static_cast<std::uint32_t>(matmul.alignment));
    std::vector<lt::HeuristicResult> results(static_cast<std::size_t>(most));
    int found = 0;
    const lt::Status status = library_.cublasLtMatmulAlgoGetHeuristic(
        handle_, description.product(), description.a(), description.b(), description.d(), description.d(),
        preference.get(), most, results.data(), &found);
    if (status == lt::not_supported)
      found = 0;
    else
      library_.check(status, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<MatmulAlgorithm> algorithms;
    for (const lt::HeuristicResult& result : std::span(results).first(static_cast<std::size_t>(found)))
      if (result.state == 0 && may_serve(description, result.algorithm))
        algorithms.push_back(algorithm_of(result));
    if (algorithms.empty())
      throw Unsupported(fmt::format("{} ({}) has no algorithm for {}", name(), library_.path, matmul.key()));
    return algorithms;
  }

  std::vector<MatmulAlgorithm> neighbours(const Matmul& matmul, const MatmulAlgorithm& of,
                                          std::int64_t most_workspace, int most) override {
    const BlockingScope scope(*context_);
    const Description description(library_, matmul);
    const lt::Algorithm own = from(of);
    const std::optional<lt::HeuristicResult> as_it_is = check(description, own, most_workspace);
    if (!as_it_is) return {};
    std::vector<lt::HeuristicResult> all;
    for (std::size_t i = attributes.size(); i-- > 0;) {
      const Attribute& attribute = attributes[i];
      const auto first = static_cast<std::ptrdiff_t>(all.size());
      const auto add = [&](std::uint32_t value, bool in_place) {
        lt::Algorithm other = own;
        if (set_config(other, attribute, value, in_place))
          if (const auto made = check(description, other, most_workspace)) all.push_back(*made);
      };
      for (const std::uint32_t value : values_of(attribute, own)) {
        const bool splits = attribute.config == lt::config_split_k && value > 1,
                   is_own = value == config(own, attribute);
        if (!is_own || (splits && is_in_place(own))) add(value, false);
        if (splits && matmul.any_order && !(is_own && is_in_place(own))) add(value, true);
      }
      // Among the many tiles, those that need about as many waves of blocks come first.
      const auto distance = [&](const lt::HeuristicResult& result) {
        return std::abs(result.waves - as_it_is->waves);
      };
      if (attribute.config == lt::config_tile)
        std::ranges::stable_sort(all.begin() + first, all.end(), {}, distance);
    }
    all.resize(std::min(all.size(), static_cast<std::size_t>(most)));
    std::vector<MatmulAlgorithm> algorithms;
    algorithms.reserve(all.size());
    for (const lt::HeuristicResult& result : all) algorithms.push_back(algorithm_of(result));
    return algorithms;
  }

  std::optional<MatmulAlgorithm> algorithm(const Matmul& matmul, std::string_view text,
                                           std::int64_t most_workspace) override {
    const std::optional<Settings> settings = settings_of(text);
    if (!settings) return std::nullopt;
    const BlockingScope scope(*context_);
    const Description description(library_, matmul);
    const int input = type_of(matmul.input), output = type_of(matmul.output);
    lt::Algorithm own{};
    if (library_.cublasLtMatmulAlgoInit(handle_, lt::compute_32f, lt::r_32f, input, input, output, output,
                                        settings->number, &own) != 0)
      return std::nullopt;
    for (std::size_t i = 0; i < attributes.size(); ++i)
      if (!set_config(own, attributes[i], settings->values[i], settings->in_place)) return std::nullopt;
    const std::optional<lt::HeuristicResult> made = check(description, own, most_workspace);
    return made ? std::optional(algorithm_of(*made)) : std::nullopt;
  }

  void launch(const Matmul& matmul, const MatmulAlgorithm& algorithm, const MatmulOperands& operands,
              Stream stream) override {
    if (matmul.m == 0 || matmul.n == 0) return;
    const ContextScope scope(*context_);
    Description description(library_, matmul);
    if (matmul.bias) description.set_bias(operands.bias);
    const float one = 1, beta = matmul.accumulates ? 1 : 0;
    const lt::Algorithm own = from(algorithm);
    library_.check(library_.cublasLtMatmul(handle_, description.product(), &one, operands.b, description.a(),
                                           operands.a, description.b(), &beta, operands.d, description.d(),
                                           operands.d, description.d(), &own, operands.workspace,
                                           static_cast<std::size_t>(algorithm.workspace_bytes), stream),
                   "cublasLtMatmul of " + matmul.key());
  }

 private:
  /// The value of an attribute; 0 if an older library lacks it.
  [[nodiscard]] std::uint32_t config(const lt::Algorithm& algorithm, const Attribute& attribute) const {
    std::uint32_t value = 0;
    std::size_t written = 0;
    static_cast<void>(library_.cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute.config, &value,
                                                                    attribute.bytes, &written));
    return value;
  }
  /// \param in_place  whether splits of k are added to the result in place; otherwise they are added up in order
  /// \returns whether the algorithm supports the value
  bool set_config(lt::Algorithm& algorithm, const Attribute& attribute, std::uint32_t value,
                  bool in_place) const {
    const auto set = [&](const Attribute& one, std::uint32_t to) {
      return config(algorithm, one) == to ||
             library_.cublasLtMatmulAlgoConfigSetAttribute(&algorithm, one.config, &to, one.bytes) == 0;
    };
    return set(attribute, value) && (attribute.config != lt::config_split_k ||
                                     set(reduction, value <= 1 ? lt::reduction_none
                                                    : in_place ? lt::reduction_in_place
                                                               : lt::reduction_compute_type));
  }

  /// The values of an attribute that the library supports. check() finds which of them are valid for a product.
  [[nodiscard]] std::vector<std::uint32_t> values_of(const Attribute& attribute,
                                                     const lt::Algorithm& algorithm) const {
    const auto capability = [&](int which) {
      std::size_t bytes = 0;
      std::vector<std::uint32_t> values;
      if (library_.cublasLtMatmulAlgoCapGetAttribute(&algorithm, which, nullptr, 0, &bytes) != 0)
        return values;
      values.resize(bytes / sizeof values.front());
      if (library_.cublasLtMatmulAlgoCapGetAttribute(&algorithm, which, values.data(), bytes, &bytes) != 0)
        values.clear();
      return values;
    };
    const auto up_to = [](std::uint32_t first, std::uint32_t last) {
      std::vector<std::uint32_t> values(last - first + 1);
      std::iota(values.begin(), values.end(), first);
      return values;
    };
    const auto most = [&](int which) {
      const std::vector<std::uint32_t> value = capability(which);
      return value.empty() ? 0 : value.front();
    };
    switch (attribute.config) {
      case lt::config_tile: return capability(lt::cap_tiles);
      case lt::config_stages: return capability(lt::cap_stages);
      case lt::config_cluster: return up_to(lt::first_cluster, lt::last_cluster);
      case lt::config_split_k: return up_to(1, most(lt::cap_split_k) != 0 ? 4 : 1);
      case lt::config_swizzling: return up_to(0, std::min(most(lt::cap_swizzling), 1U));
      case lt::config_custom: return up_to(0, std::min(most(lt::cap_most_custom), 15U));
      default: return {};
    }
  }

  /// \returns nothing if the algorithm is invalid for the product, needs more memory, or may not serve it
  [[nodiscard]] std::optional<lt::HeuristicResult> check(const Description& description,
                                                         const lt::Algorithm& algorithm,
                                                         std::int64_t most_workspace) const {
    lt::HeuristicResult result{};
    if (library_.cublasLtMatmulAlgoCheck(handle_, description.product(), description.a(), description.b(),
                                         description.d(), description.d(), &algorithm, &result) != 0)
      return std::nullopt;
    result.algorithm = algorithm;
    const bool fits = static_cast<std::int64_t>(result.workspace_bytes) <= most_workspace;
    return result.state == 0 && fits && may_serve(description, algorithm) ? std::optional(result)
                                                                          : std::nullopt;
  }

  [[nodiscard]] bool is_in_place(const lt::Algorithm& algorithm) const {
    return config(algorithm, reduction) == lt::reduction_in_place;
  }
  /// Splits of k that are added up after rounding are not requested, nor are in-place splits unless any order is
  /// allowed. An algorithm that does either of them anyway is rejected.
  [[nodiscard]] bool may_serve(const Description& description, const lt::Algorithm& algorithm) const {
    const std::uint32_t scheme = config(algorithm, reduction);
    return scheme == lt::reduction_none || scheme == lt::reduction_compute_type ||
           (description.any_order && scheme == lt::reduction_in_place);
  }

  [[nodiscard]] static lt::Algorithm from(const MatmulAlgorithm& algorithm) {
    lt::Algorithm own{};
    std::memcpy(&own, algorithm.opaque.data(), sizeof own);
    return own;
  }
  [[nodiscard]] MatmulAlgorithm algorithm_of(const lt::HeuristicResult& result) const {
    const lt::Algorithm& own = result.algorithm;
    std::string text = fmt::to_string(config(own, number));
    for (const Attribute& attribute : attributes)
      text += fmt::format("{}{}={}", text.find('/') == std::string::npos ? '/' : ',', attribute.word,
                          config(own, attribute));
    if (is_in_place(own)) text += in_place_word;
    MatmulAlgorithm algorithm{.text = std::move(text),
                              .workspace_bytes = static_cast<std::int64_t>(result.workspace_bytes)};
    std::memcpy(algorithm.opaque.data(), &own, sizeof own);
    return algorithm;
  }

  const CublasLt& library_;
  std::shared_ptr<const PrimaryContext> context_;
  lt::Handle* handle_ = nullptr;
};

}  // namespace

const CublasLt::Opened& CublasLt::shared() {
  static constinit MadeOnce<Opened> opened;
  return opened.get(open_library);
}

std::string CublasLt::version() const {
  // 13.1.0 is 130100, 12.9.1 is 120901.
  const std::size_t version = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void CublasLt::check(lt::Status status, std::string_view call, SourceLocation where) const {
  if (status != 0) throw DeviceError(call, status, cublasLtGetStatusString(status), where);
}

std::unique_ptr<MatmulLibrary> open_cublaslt(std::shared_ptr<const PrimaryContext> context) {
  const auto& [library, tried] = CublasLt::shared();
  if (library == nullptr)
    throw Unsupported(
        fmt::format("matrix products need cuBLASLt, but no usable copy was found. Install the one of CUDA, "
                    "or set CE_CUBLASLT to its file. Looked in:\n  {}",
                    fmt::join(tried, "\n  ")));
  return std::make_unique<CublasLtMatmuls>(*library, std::move(context));
}

}  // namespace ce::runtime::cuda
