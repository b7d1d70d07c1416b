#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace pipewright {

/// SHA-256 of bytes that come piece by piece. Not for several threads at once.
class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);

  /// The checksum of what came so far, 64 digits of 0-9a-f. More may follow.
  std::string hex() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

std::string sha256_hex(std::string_view text);

}  // namespace pipewright
