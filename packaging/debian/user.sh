# Creates the user of the daemons. Its group is for operators: members may connect to the controller and the switch.
if ! getent passwd sluice >/dev/null; then
  adduser --system --group --quiet --no-create-home --home /var/lib/sluice --gecos "Sluice router" sluice
fi
