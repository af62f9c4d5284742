#pragma once
/// \file
/// Signatures of files by ssh keys: `ssh-keygen -Y` makes and verifies them, in the namespace "ce".

#include <filesystem>
#include <string>
#include <string_view>

namespace ce::cache {

/// Where the signature of a file lies.
[[nodiscard]] std::filesystem::path signature_of(const std::filesystem::path& file);

/// The signature of a text.
/// \param key  a private key, or the public one of a key that an ssh agent has
/// \throws NotFound where there is no key, Unsupported without ssh-keygen, DatabaseError with what it said
[[nodiscard]] std::string sign(std::string_view text, const std::filesystem::path& key);

/// Whom a list of allowed signers (ssh-keygen(1), ALLOWED SIGNERS) names for the signature of a text.
/// \throws DatabaseError saying why the text is not believed, Unsupported without ssh-keygen
[[nodiscard]] std::string signer_of(std::string_view text, const std::filesystem::path& signature,
                                    const std::filesystem::path& allowed_signers);

}  // namespace ce::cache
