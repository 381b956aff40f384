description: Debian 12 with Python 3, pip and venv
from: base
size_mib: 2048
packages: python3 python3-pip python3-venv python-is-python3

# The sandbox is the environment: pip may install into it.
file: /etc/pip.conf <<EOF
[global]
break-system-packages = true
disable-pip-version-check = true
root-user-action = ignore
EOF
