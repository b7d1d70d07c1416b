#include "pipewright/base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "pipewright/base/error.h"

namespace pipewright {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  internal_check(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
                 "OpenSSL has no SHA-256");
}

void Sha256::update(std::span<const std::byte> bytes) {
  internal_check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1,
                 "OpenSSL takes bytes");
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text))); }

std::string Sha256::hex() const {
  // Finishing a copy leaves this one open for more.
  const std::unique_ptr<evp_md_ctx_st, Free> copy(EVP_MD_CTX_new());
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  internal_check(copy && EVP_MD_CTX_copy_ex(copy.get(), context_.get()) == 1 &&
                     EVP_DigestFinal_ex(copy.get(), digest.data(), &length) == 1,
                 "OpenSSL finishes a SHA-256");
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += kDigits[digest[i] >> 4U];
    text += kDigits[digest[i] & 15U];
  }
  return text;
}

std::string sha256_hex(std::string_view text) {
  Sha256 sha;
  sha.update(text);
  return sha.hex();
}

}  // namespace pipewright
