#include <map>
#include <mutex>

#include "ce/context.hpp"
#include "ce/device_name.hpp"

namespace ce {

Context& default_context() {
  // Never destroyed: the driver may be gone before the last static is.
  static std::mutex& mutex = *new std::mutex;
  static auto& contexts = *new std::map<std::string, std::unique_ptr<Context>>;
  const std::string name = default_device_name();
  const std::lock_guard lock(mutex);
  std::unique_ptr<Context>& context = contexts[name];
  if (!context) context = std::make_unique<Context>(ContextOptions{.device = name});
  return *context;
}

}  // namespace ce
