"""Key pairs for the official client."""

import pulsar
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


class Keys(pulsar.CryptoKeyReader):
    """A key pair in files."""

    def __init__(self, folder):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.TraditionalOpenSSL
        (folder / "private.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / "public.pem").write_bytes(public)
        super().__init__(str(folder / "public.pem"), str(folder / "private.pem"))
