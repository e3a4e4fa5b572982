"""The certificate authorities of tests' own HTTP clients."""

from caraway.process.authorities import authorities

#: Each client of httpx2 that isn't given them would read them anew, also one for plain HTTP.
TLS = authorities()
