#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "pipewright/transport/process_transport.h"

namespace pipewright {

/// Groups of all processes of the world for tensors, one for each direction: sends and receives
/// between two processes would wait for each other in one.
struct TensorGroups {
  c10::intrusive_ptr<compat::ProcessGroup> up;    // to processes of higher number
  c10::intrusive_ptr<compat::ProcessGroup> down;  // to lower ones
};

/// Ranks are processes; tensors travel over groups that know no names and no order but the one in
/// which they are sent: NCCL. A message is announced over Gloo, with its key and its shapes, then
/// sent. A thread takes messages in the order of their announcements, before anyone asks for them:
/// a receive that waits on a GPU would hold it up. Numbers go over Gloo alone.
///
///     sender   announce A | send A | announce B | send B      a thread; GPU work on its own stream
///     taker               | A: memory, post receive | B: ...  a thread; likewise
///     rank                                     receive B, receive A: its stream waits for their
///     end
class OrderedTransport : public Transport {
 public:
  /// `group`: of all processes of the world, over Gloo. `device`: of this rank's stages. The rest
  /// as of ProcessTransport.
  OrderedTransport(World* world, c10::intrusive_ptr<compat::ProcessGroup> group,
                   TensorGroups tensors, std::vector<int> processes, int rank, torch::Device device,
                   const std::vector<torch::Device>& stage_devices,
                   std::chrono::duration<double> deadline);
  /// What was sent is taken first, or the deadline passes, or the run fails.
  ~OrderedTransport() override;
  OrderedTransport(const OrderedTransport&) = delete;
  OrderedTransport& operator=(const OrderedTransport&) = delete;
  OrderedTransport(OrderedTransport&&) = delete;
  OrderedTransport& operator=(OrderedTransport&&) = delete;

  /// Throws InvalidArgument for what cannot travel: see wire.h.
  void send(int to_rank, const MessageKey& key, Message message) override;
  void expect(int from_rank, const MessageKey& key) override;
  Message receive(int at_rank, int from_rank, const MessageKey& key) override;
  /// For good, as with ProcessTransport.
  void abort() override;
  void reset() override;

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;
  struct Outgoing {
    int to_rank = 0;
    MessageKey key;
    Message message;
  };
  struct Leaving {
    int to_rank = 0;
    MessageKey key;
    bool on_device = false;  // else over Gloo
    torch::Tensor buffer;
    Work work;
  };
  struct Arrived {
    Message message;
    torch::Tensor buffer;  // that its tensors share
  };
  struct Announcement {
    int from_rank = 0;
    MessageKey key;
    MessageHeader header;
  };

  bool over_gloo(int other_rank, const MessageKey& key) const;
  compat::ProcessGroup& tensors_between(int from_rank, int to_rank) const;
  void serve_sends();
  void put(const Outgoing& outgoing);
  void announce(const Outgoing& outgoing, const MessageHeader& header);
  void leave(Leaving leaving);
  void serve_completions();
  bool wait_for(const Work& work, bool on_device);
  bool wait_for_device(const Work& work);
  void serve_receives();
  bool take_next();
  Announcement announced(const torch::Tensor& first, int process);
  void take(const Announcement& next);
  int rank_of(int process) const;
  bool aborted() const;
  bool stopped() const;

  World* world_;
  c10::intrusive_ptr<compat::ProcessGroup> group_;
  TensorGroups tensors_;
  std::vector<int> processes_;
  int rank_;
  torch::Device device_;
  int num_stages_;
  std::chrono::duration<double> deadline_;
  Blame blame_;
  ProcessTransport gloo_;
  DeviceCopy copy_;
  DeviceStream send_stream_, take_stream_;
  Waits waits_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> outgoing_;
  std::deque<Leaving> leaving_;  // until the receiver has them
  std::map<std::pair<int, MessageKey>, std::deque<Arrived>> arrived_;
  bool sending_ = false;  // a message is being packed
  bool ending_ = false;   // nothing more is sent
  bool stopped_ = false;  // nothing more is taken
  bool aborted_ = false;
  int exceptions_;  // on their way when this was made
  int listener_ = 0;
  std::thread sender_;
  std::thread completer_;
  std::thread taker_;
};

}  // namespace pipewright
