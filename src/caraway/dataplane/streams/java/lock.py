"""The lock file of jars, with the use and the digest of each."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(__file__).with_name("ivy.xml")
DIGESTS = Path(__file__).with_name("jars.sha256")
MAVEN_CENTRAL = Path(__file__).with_name("ivysettings.xml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """A jar of the lock file.

    Attributes:
        organisation: The Maven group.
        name: The Maven artifact.
        revision: The version.
        uses: The parts that need the jar: "broker", "connector" (a jar may serve both) or "compiler".
        sha256: The digest of its bytes, in hexadecimal.
    """

    organisation: str
    name: str
    revision: str
    uses: frozenset[str]
    sha256: str

    @property
    def file_name(self) -> str:
        """Return the name of the jar's file in the cache."""
        return f"{self.name}-{self.revision}.jar"


def read_lock() -> tuple[Jar, ...]:
    """Return the locked jars, in the order of the lock file."""
    digests = {name: digest for digest, name in map(str.split, DIGESTS.read_text().splitlines())}
    dependencies = ET.parse(LOCK).iterfind("dependencies/dependency")  # noqa: S314 (our own file)
    return tuple(
        Jar(
            organisation=dependency.attrib["org"],
            name=dependency.attrib["name"],
            revision=dependency.attrib["rev"],
            uses=frozenset(mapping.split("->")[0] for mapping in dependency.attrib["conf"].split(";")),
            sha256=digests[f"{dependency.attrib['name']}-{dependency.attrib['rev']}.jar"],
        )
        for dependency in dependencies
    )


def ivy_module(jars: Iterable[Jar]) -> str:
    """Return an Ivy module file that requires these jars and nothing else."""
    module = ET.Element("ivy-module", version="2.0")
    ET.SubElement(module, "info", organisation="caraway", module="jars")
    ET.SubElement(ET.SubElement(module, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(module, "dependencies")
    for jar in jars:
        # Ivy's configuration `default` exists for jars with and without a Maven POM. The configuration `master`, which
        # is the jar without its dependencies, exists only with a POM. So `default` is used, and `transitive` leaves the
        # dependencies out.
        names = {"org": jar.organisation, "name": jar.name, "rev": jar.revision}
        ET.SubElement(dependencies, "dependency", names, transitive="false", conf="default->default")
    return ET.tostring(module, encoding="unicode")
