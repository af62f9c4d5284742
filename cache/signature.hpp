#pragma once
/// \file
/// Signatures of files by ssh keys: `ssh-keygen -Y` makes and verifies them, in the namespace "ce".

#include <filesystem>
#include <string>
#include <string_view>

namespace ce::cache {

/// The path of a file's signature.
[[nodiscard]] std::filesystem::path signature_of(const std::filesystem::path& file);

/// Signs a text.
/// \param key  a private key, or the public key of one that an ssh agent holds
/// \throws NotFound if there is no key, Unsupported without ssh-keygen, DatabaseError with its message
[[nodiscard]] std::string sign(std::string_view text, const std::filesystem::path& key);

/// Verifies a text's signature. \returns the signer's name in a list of allowed signers (ssh-keygen(1), ALLOWED
/// SIGNERS)
/// \throws DatabaseError saying why the signature is not accepted, Unsupported without ssh-keygen
[[nodiscard]] std::string signer_of(std::string_view text, const std::filesystem::path& signature,
                                    const std::filesystem::path& allowed_signers);

}  // namespace ce::cache
