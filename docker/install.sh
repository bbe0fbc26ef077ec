#!/bin/sh
# Inside the image's build: Python, the broker in /opt/magnetar, the paths of Apache Pulsar's image in /pulsar, and
# nothing that only a build needs. Wheels in docker/wheels (make image puts them there) are used instead of the network.
set -eu
if ! command -v python3 > /dev/null; then
    apt-get update -q
    apt-get install -y -q --no-install-recommends python3 python3-venv python3-pip ca-certificates
fi
python3 -m venv --without-pip /opt/magnetar
if ls /src/docker/wheels/*.whl > /dev/null 2>&1; then
    python3 -m pip --python /opt/magnetar/bin/python install -q --no-cache-dir --no-index --find-links /src/docker/wheels magnetar
else
    apt-get update -q
    apt-get install -y -q --no-install-recommends gcc libc6-dev python3-dev # brings strip, too
    python3 -m pip --python /opt/magnetar/bin/python install -q --no-cache-dir /src
fi
mkdir -p /pulsar/bin /pulsar/conf /pulsar/data /pulsar/logs
install -m 755 /src/docker/bin/* /pulsar/bin/
install -m 644 /src/conf/standalone.conf /pulsar/conf/standalone.conf
cp /pulsar/conf/standalone.conf /pulsar/conf/broker.conf
printf 'webServiceUrl=http://localhost:8080/\nbrokerServiceUrl=pulsar://localhost:6650/\n' > /pulsar/conf/client.conf
echo 'magnetar:x:10000:0:Magnetar:/pulsar:/bin/bash' >> /etc/passwd
chown -R 10000:0 /pulsar
chmod -R g=u /pulsar

# Remove the files that only a build needs, and those that no program reads.
site=$(echo /opt/magnetar/lib/python3*/site-packages)
! command -v strip > /dev/null || find "$site" -name '*.so' -exec strip --strip-unneeded {} + 2> /dev/null || true
find "$site/pygments/lexers" -mindepth 1 ! -name __init__.py ! -name _mapping.py -exec rm -rf {} + # rich wants the rest
find "$site" \( -name '*.c' -o -name '*.h' -o -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' \) -delete
[ ! -x /usr/bin/gcc ] || apt-get purge -y -q --auto-remove gcc libc6-dev python3-dev > /dev/null
dpkg --purge --force-depends python3-pip python3-venv python3.11-venv python3-setuptools python3-wheel python3-distutils \
    python3-lib2to3 python3-pkg-resources python3-pip-whl python3-setuptools-whl \
    binutils binutils-common binutils-x86-64-linux-gnu libbinutils libctf0 libctf-nobfd0 libgprofng0 > /dev/null 2>&1 || true
rm -rf /src /root/.cache /var/lib/apt/lists/* /var/cache/* /var/log/* /usr/share/doc/* /usr/share/man/* /usr/share/info/* \
    /usr/share/locale/* /usr/share/i18n /usr/lib/x86_64-linux-gnu/gconv /usr/lib/python3/dist-packages/pip* \
    /usr/share/python-wheels /usr/share/zoneinfo /usr/share/perl5 /usr/lib/x86_64-linux-gnu/perl-base /usr/bin/perl* \
    /usr/bin/apt* /usr/lib/apt /usr/lib/x86_64-linux-gnu/libapt* /usr/lib/x86_64-linux-gnu/libgnutls* /var/lib/dpkg/info \
    /usr/lib/x86_64-linux-gnu/libdb-5* /usr/bin/localedef /usr/bin/gpgv /usr/lib/locale \
    /usr/lib/python3*/test /usr/lib/python3*/ensurepip /usr/lib/python3*/idlelib /usr/lib/python3*/lib2to3
find /opt/magnetar -name tests -type d -prune -exec rm -rf {} +
find /usr/lib/python3* -name __pycache__ -prune -exec rm -rf {} + 2> /dev/null || true
