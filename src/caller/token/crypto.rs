//! The signatures of tokens, checked by the library that TLS uses too. Nothing is ever signed here.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };

/// Makes this what tokens are checked with. Once is enough.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

fn signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let check = match algorithm {
        Algorithm::RS256 => Check::Rsa(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Check::Rsa(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Check::Rsa(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Check::Rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Check::Rsa(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Check::Rsa(&RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Check::Plain(AlgorithmFamily::Ec, &ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Check::Plain(AlgorithmFamily::Ec, &ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Check::Plain(AlgorithmFamily::Ed, &ED25519),
        _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
    };
    let family = match &check {
        Check::Rsa(_) => AlgorithmFamily::Rsa,
        Check::Plain(family, _) => *family,
    };
    if key.family() != family {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(Ring { algorithm: *algorithm, check, key: key.clone() }))
}

enum Check {
    Rsa(&'static RsaParameters),
    Plain(AlgorithmFamily, &'static dyn VerificationAlgorithm),
}

struct Ring {
    algorithm: Algorithm,
    check: Check,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let good = match (&self.check, self.key.kind()) {
            (Check::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                // A modulus may be written with zeros before it, which the check takes for a fault.
                let n = &n[n.iter().take_while(|byte| **byte == 0).count()..];
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Check::Plain(_, algorithm), DecodingKeyKind::SecretOrDer(bytes)) => {
                UnparsedPublicKey::new(*algorithm, bytes).verify(message, signature)
            }
            _ => return Err(Error::new()),
        };
        good.map_err(|_| Error::new())
    }
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
