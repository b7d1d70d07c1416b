#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "pipewright/transport/blame.h"
#include "pipewright/transport/inproc.h"
#include "pipewright/transport/lifelines.h"
#include "pipewright/transport/waits.h"
#include "pipewright/transport/wire.h"
#include "pipewright/transport/world.h"

namespace pipewright {

/// What went over the wire.
struct Traffic {
  std::int64_t messages = 0;  // buffers and headers
  std::int64_t bytes = 0;
  std::int64_t payload_bytes = 0;  // of tensors
};

/// Ranks are processes. Sends are packed and handed over by a thread of their own; a receive that
/// is expected is posted before it is needed. Dtypes, sizes and strides travel when they are new
/// for a message, and are known from then on.
class ProcessTransport : public Transport {
 public:
  /// `group`: of all processes of the world; `processes`: which of them each rank is. `rank`: this
  /// process's. `deadline`: of a wait for a process that lives.
  ProcessTransport(World* world, c10::intrusive_ptr<compat::ProcessGroup> group,
                   std::vector<int> processes, int rank, std::vector<torch::Device> stage_devices,
                   std::chrono::duration<double> deadline);
  /// What was sent is taken first, or the deadline passes, or the run fails: also where an
  /// exception is on its way through, which fails it.
  ~ProcessTransport() override;

  /// Throws InvalidArgument for what cannot travel: see wire.h.
  void send(int to_rank, const MessageKey& key, Message message) override;
  void expect(int from_rank, const MessageKey& key) override;
  Message receive(int at_rank, int from_rank, const MessageKey& key) override;
  /// For good: a connection that was given up cannot be used again.
  void abort() override;
  void reset() override;

  Traffic sent() const;

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;
  /// One message of a key may take up to four on the wire.
  enum class Part : std::uint8_t { kBuffer, kHeader, kLongHeader, kLateBuffer };
  struct Outgoing {
    int to_rank = 0;
    MessageKey key;
    Message message;
  };
  struct Posted {
    torch::Tensor buffer;
    Work work;
  };
  struct Leaving {
    int to_rank = 0;
    MessageKey key;
    Posted posted;
  };

  Posted post(int from_rank, const MessageKey& key, Part part, torch::Tensor buffer);
  Posted post_first(int from_rank, const MessageKey& key);
  void wait(const Posted& posted, int from_rank, const MessageKey& key);
  bool wait_for(const Work& work);
  MessageHeader receive_header(Posted first, int from_rank, const MessageKey& key);
  [[noreturn]] void give_up(int from_rank, const MessageKey& key, const std::string& why);
  void put(int to_rank, const MessageKey& key, Part part, torch::Tensor buffer);
  void put_message(const Outgoing& outgoing);
  void put_header(const Outgoing& outgoing, const MessageHeader& header);
  void serve_sends();
  void serve_completions();
  bool aborted() const;
  void fail_sending(int to_rank, const MessageKey& key, const std::string& why);

  World* world_;
  c10::intrusive_ptr<compat::ProcessGroup> group_;
  int num_ranks_;
  int rank_;
  std::vector<torch::Device> stage_devices_;
  std::chrono::duration<double> deadline_;
  Blame blame_;
  InprocTransport self_;  // between stages of this rank
  DeviceCopy copy_;
  Waits waits_;

  /// One name may go to, or come from, several ranks.
  using Address = std::pair<int, MessageKey>;
  std::map<Address, MessageHeader> received_;  // as the sender last described them
  std::map<Address, Posted> posted_;
  std::map<Address, MessageHeader> sent_;  // of the sending thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> outgoing_;
  std::deque<Leaving> leaving_;  // until the receiver has them
  Traffic traffic_;
  bool sending_ = false;  // a message is being packed
  bool ending_ = false;
  bool aborted_ = false;
  int exceptions_;  // on their way when this was made
  int listener_ = 0;
  std::thread sender_;
  std::thread completer_;
  std::unique_ptr<Lifelines> lifelines_;
};

}  // namespace pipewright
