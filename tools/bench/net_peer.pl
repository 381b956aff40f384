# SPDX-License-Identifier: Apache-2.0
#
# Both ends of the network benchmark; the guest has no more than Perl.
#
#   net_peer.pl serve PORT READY     a line a request: `get N` is answered with N bytes, `put N` reads N bytes and says ok, `ask` says ok,
#                                    `note WORD` says ok and adds the word and its own time to READY.notes
#   net_peer.pl get|put ADDR PORT N  once, over a connection of its own
#   net_peer.pl request ADDR PORT N  N times: connect, ask, read the answer, close
#   net_peer.pl turn ADDR PORT N     N times: ask over one connection, read the answer
#   net_peer.pl hold ADDR PORT       connects and notes `held`; when that connection ends, notes `seen` over another one
#   net_peer.pl denied NAME N        N times: ask the resolver for a name that there is not
#
# A client prints what it took in nanoseconds, one a line.
use strict;
use warnings;
use Socket;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC CLOCK_REALTIME);

my $BLOCK = 256 * 1024;
my ($what, @arg) = @ARGV;
$| = 1;

sub timed {
	my ($f) = @_;
	my $begun = clock_gettime(CLOCK_MONOTONIC);
	$f->();
	printf "%.0f\n", (clock_gettime(CLOCK_MONOTONIC) - $begun) * 1e9;
}

sub say_all {
	my ($s, $data) = @_;
	while (length $data) {
		my $n = syswrite($s, $data) // die "write: $!\n";
		substr($data, 0, $n, '');
	}
}

# The line, and how many bytes behind it were read as well.
sub read_line {
	my ($s) = @_;
	my $line = '';
	while ($line !~ /\n/) {
		sysread($s, $line, 4096, length $line) or return;
	}
	return ($line, length($line) - 1 - index($line, "\n"));
}

sub give {
	my ($s, $left) = @_;
	my $block = "\0" x $BLOCK;
	while ($left > 0) {
		$left -= syswrite($s, $block, $left < $BLOCK ? $left : $BLOCK) // die "write: $!\n";
	}
}

sub take {
	my ($s, $left) = @_;
	while ($left > 0) {
		my $n = sysread($s, my $data, $BLOCK);
		die "read: " . (defined $n ? "the end" : $!) . "\n" unless $n;
		$left -= $n;
	}
}

sub add_note {
	my ($notes, $word) = @_;
	my $now = clock_gettime(CLOCK_REALTIME);
	open(my $f, '>>', $notes) or die "$notes: $!\n";
	syswrite($f, sprintf("%s %.0f\n", $word, $now * 1e9));
	close $f;
}

sub serve_one {
	my ($s, $notes) = @_;
	while (my ($line, $more) = read_line($s)) {
		my ($verb, $n) = split ' ', $line;
		if ($verb eq 'get') {
			give($s, $n);
		} else {
			take($s, $n - $more) if $verb eq 'put';
			add_note($notes, $n) if $verb eq 'note';
			say_all($s, "ok\n");
		}
	}
}

sub serve {
	my ($port, $ready) = @_;
	local $SIG{CHLD} = 'IGNORE';
	socket(my $l, PF_INET, SOCK_STREAM, 0) or die "socket: $!\n";
	setsockopt($l, SOL_SOCKET, SO_REUSEADDR, 1);
	bind($l, sockaddr_in($port, INADDR_ANY)) or die "bind: $!\n";
	listen($l, 128) or die "listen: $!\n";
	open(my $f, '>', $ready) or die "$ready: $!\n";
	close $f;
	# Forked before a client comes: a fork is no part of a request.
	for (1 .. 4) {
		my $pid = fork // die "fork: $!\n";
		next if $pid;
		while (1) {
			accept(my $s, $l) or next;
			setsockopt($s, Socket::IPPROTO_TCP(), Socket::TCP_NODELAY(), 1);
			eval { serve_one($s, "$ready.notes") };
			close $s;
		}
	}
	$SIG{TERM} = sub { local $SIG{TERM} = 'IGNORE'; kill 'TERM', -getpgrp; exit 0 };
	sleep 3600 while 1;
}

sub dial {
	socket(my $s, PF_INET, SOCK_STREAM, 0) or die "socket: $!\n";
	setsockopt($s, Socket::IPPROTO_TCP(), Socket::TCP_NODELAY(), 1);
	connect($s, sockaddr_in($arg[1], inet_aton($arg[0]))) or die "connect: $!\n";
	return $s;
}

sub ask {
	my ($s, $line) = @_;
	say_all($s, ($line // 'ask') . "\n");
	(my @answer = read_line($s)) or die "no answer\n";
}

if ($what eq 'serve') {
	setpgrp;
	serve(@arg);
} elsif ($what eq 'get') {
	my $s = dial();
	timed(sub { say_all($s, "get $arg[2]\n"); take($s, $arg[2]) });
} elsif ($what eq 'put') {
	my $s = dial();
	timed(sub { say_all($s, "put $arg[2]\n"); give($s, $arg[2]); (my @answer = read_line($s)) or die "no answer\n" });
} elsif ($what eq 'request') {
	timed(sub { my $s = dial(); ask($s); close $s }) for 1 .. $arg[2];
} elsif ($what eq 'turn') {
	my $s = dial();
	timed(sub { ask($s) }) for 1 .. $arg[2];
} elsif ($what eq 'hold') {
	my $s = dial();
	ask($s, 'note held');
	sysread($s, my $data, 1);
	ask(dial(), 'note seen');
} elsif ($what eq 'denied') {
	timed(sub { die "$arg[0] has an address\n" if defined gethostbyname($arg[0]) }) for 1 .. $arg[1];
} else {
	die "net_peer.pl: $what: no such thing\n";
}
