#!/usr/bin/env perl
# matrix.pl FOLDER WORK [--quick] [--peers NAME,…] [--page FILE] [WORKLOAD]…   the matrix; FOLDER has the programs
# matrix.pl FOLDER WORK PEER WORKLOAD CALL ERROR WHEN                         one cell, with what the program printed
use v5.30;
use warnings;
use FindBin;
use Time::HiRes 'time';

my ($folder, $work, @rest) = @ARGV;
my @workloads = qw(timer timers ring echo storm child udp tail posts connect tls nested);
my @bad = qw(hang spin crash loss leak);
my $inject = "$folder/inject";
my (%errors, @excluded);

sub lines { open my $file, '<', $_[0] or return; local $/; my $text = <$file>; split /\n/, $text // '' }

for (grep { /^\w/ } lines("$FindBin::Bin/errors.txt")) {
    my ($call, @names) = split;
    $errors{$call} = \@names;
}
for (grep { /^[*\w]/ } lines("$FindBin::Bin/excluded.txt")) {
    my ($call, $names, $when, $reason) = split ' ', $_, 4;
    push @excluded, {call => $call, names => $names, when => $when, reason => $reason};
}

# Whether the list excludes a cell. Without an error: whether it excludes the call.
sub is_excluded {
    my ($call, $error, $when) = @_;
    (my $plain = $call) =~ s/@.*//;
    for my $entry (@excluded) {
        next unless $entry->{call} eq '*' || $entry->{call} eq $call || $entry->{call} eq $plain;
        return 1 if $entry->{names} eq '*';
        next unless defined $error && grep { $_ eq $error } split /,/, $entry->{names};
        return 1 if $entry->{when} eq '*' || $entry->{when} eq $when;
    }
    return 0;
}

sub errors_of {
    my ($call) = @_;
    (my $plain = $call) =~ s/@.*//;
    return $errors{$call} // $errors{$plain};
}

# Runs a workload. Returns the injector's report, and what the program has printed.
sub run {
    my ($peer, $workload, @options) = @_;
    unlink "$work/report";
    local $ENV{SWIFT_BACKTRACE} = 'enable=no';
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        open STDIN, '<', '/dev/null';
        open STDOUT, '>', "$work/output";
        open STDERR, '>', "$work/errors";
        exec $inject, @options, '--report', "$work/report", '--', "$folder/hostile-$peer", $workload, "$work/certificate.pem",
            "$work/key.pem" or exit 125;
    }
    waitpid $pid, 0;
    my ($report) = lines("$work/report");
    die "inject has failed: " . join("\n", lines("$work/errors")) unless $report;
    my ($injected, $processor, $wall) = $report =~ /injected=(\d+) processor=(\d+) wall=(\d+)/;
    (my $end = $report) =~ s/ injected.*//;
    return {end => $end, injected => $injected, processor => $processor, wall => $wall,
        output => join("\n", lines("$work/output")), errors => join("\n", lines("$work/errors"))};
}

# The verdict, and a sentence where it is not that the result is right.
sub judge {
    my ($run, $base) = @_;
    my ($told) = $run->{output} =~ /^told: (.*)/m;
    my $sentence = (grep { /[a-z]{3}/i } split /\n/, $run->{errors})[0];
    if ($run->{end} =~ /^(hang|spin)$/) {
        my $said = $told // $sentence;
        return ('told', "$said, and waits") if $said && $1 eq 'hang';
        return ($1, $said // 'nothing is printed');
    }
    return ('loss', $1) if $run->{output} =~ /^wrong: (.*)/m;
    if ($run->{end} eq 'exit 0') {
        my ($result, $open) = $run->{output} =~ /^right (\S+) open=(\S+)/m;
        return ('loss', 'ended without a result') unless defined $result;
        return ('loss', "$result in place of $base->{result}") if $result ne $base->{result};
        return ('spin', "$run->{processor} ms of processor time, not $base->{processor}")
            if $run->{processor} > 2 * $base->{processor} + 100 + $run->{wall} / 20;
        my ($files, $counters) = split /\+/, $open;
        my ($base_files, $base_counters) = split /\+/, $base->{open};
        return ('leak', "$open descriptors are open, not $base->{open}") if $files > $base_files || $counters > $base_counters + 6;
        return ('right', '');
    }
    return ('told', $told) if $told;
    return ('told', "($run->{end}) $sentence") if $sentence;
    return ('crash', "$run->{end}, without a sentence");
}

# How the workload ends without errors, and the calls that it makes.
sub baseline {
    my ($peer, $workload) = @_;
    my $run = run($peer, $workload, '--record', "$work/record");
    my ($result, $open) = $run->{output} =~ /^right (\S+) open=(\S+)/m;
    die "$peer $workload does not work: $run->{end} $run->{output} $run->{errors}\n" unless defined $result;
    my %counts = map { split } lines("$work/record");
    return {result => $result, open => $open, processor => $run->{processor}, counts => \%counts};
}

# One cell by its command.
if (@rest == 5 && $rest[2] =~ /^[a-z]/ && $rest[3] =~ /^E[A-Z0-9]+$/) {
    my ($peer, $workload, $call, $error, $when) = @rest;
    my $base = baseline($peer, $workload);
    my @when = $when eq 'all' ? () : ('--when', $when eq 'first' ? 1 : $when);
    my $run = run($peer, $workload, '--call', $call, '--error', $error, @when);
    my ($verdict, $why) = judge($run, $base);
    say $run->{output} if $run->{output};
    say $run->{errors} if $run->{errors};
    say "$run->{end}: $run->{injected} injected of $base->{counts}{$call}, $run->{processor} ms of processor time in $run->{wall} ms"
        if $base->{counts}{$call};
    say "$verdict", $why ? ": $why" : '';
    exit($verdict =~ /^(right|told)$/ ? 0 : 1);
}

my (@peers, @chosen, $quick, $page);
while (defined(my $argument = shift @rest)) {
    if ($argument eq '--quick') { $quick = 1 }
    elsif ($argument eq '--peers') { @peers = split /,/, shift @rest }
    elsif ($argument eq '--page') { $page = shift @rest }
    else { push @chosen, $argument }
}
@peers = qw(reactor libevent libuv) unless @peers;
@chosen = @workloads unless @chosen;

# The cells of a workload: [call, error, when].
sub cells {
    my ($base, $unlisted) = @_;
    my @cells;
    for my $call (sort keys %{$base->{counts}}) {
        next if is_excluded($call);
        my $names = errors_of($call) or $unlisted->{$call}++, next;
        my $count = $base->{counts}{$call};
        for my $error ($quick ? @$names[0 .. ($#$names < 2 ? $#$names : 2)] : @$names) {
            my @when = ('first', $count >= 3 && !$quick ? int($count / 2) + 1 : (), 'all');
            push @cells, map { [$call, $error, $_] } grep { !is_excluded($call, $error, $_ =~ /\d/ ? 'middle' : $_) } @when;
        }
    }
    return @cells;
}

my (%table, @faults, %unlisted);
$| = 1;
for my $workload (@chosen) {
    for my $peer (@peers) {
        next unless grep { $_ eq $workload } split ' ', `$folder/hostile-$peer --list 2>/dev/null`;
        my $base = baseline($peer, $workload);
        my $entry = $table{$workload}{$peer} = {};
        my $begin = time;
        for my $cell (cells($base, \%unlisted)) {
            my ($call, $error, $when) = @$cell;
            my @when = $when eq 'all' ? () : ('--when', $when eq 'first' ? 1 : $when);
            my ($run, $verdict, $why);
            # What a busy machine causes does not happen twice.
            for (1, 2) {
                $run = run($peer, $workload, '--call', $call, '--error', $error, @when);
                last unless $run->{injected};
                ($verdict, $why) = judge($run, $base);
                last if $verdict =~ /^(right|told)$/;
            }
            next unless $run->{injected};
            $entry->{cells}++;
            $entry->{$verdict}++;
            next if $verdict =~ /^(right|told)$/;
            push @faults, [$peer, $workload, $call, $error, $when, $verdict, $why];
            say "  $verdict: scripts/hostile $peer $workload $call $error $when  # $why";
        }
        say sprintf '%s %s: %s (%.0f s)', $workload, $peer,
            join(', ', map { ($entry->{$_} // 0) . " $_" } grep { $entry->{$_} } qw(cells right told), @bad), time - $begin;
    }
}
say "No entry in errors.txt: ", join ' ', sort keys %unlisted if %unlisted;

exit unless $page;
open my $file, '>', $page or die "$page: $!";
select $file;
my $versions = join '; ', map { chomp; $_ } map { `$folder/hostile-$_ --version 2>/dev/null` || $_ } @peers;
chomp(my $kernel = `uname -r`);
print <<END;
# Hostile Linux

What the library and its peers do when a system call fails. Written by `scripts/hostile`; [Hostile](Hostile/README.md) has the
method, the workloads and the verdicts.

$versions; Linux $kernel.

Each cell is one run of a workload, in which one of its system calls returns one of its errors: the first time, once in the middle,
or every time. **right**: the result is the same. **told**: the program got an error, or a library's message says why the program ended
or waits. The others break a promise: **hang** (nothing happens, and nothing is said), **spin** (the same, on the processor),
**crash** (it ends without a message), **loss** (a wrong result), **leak** (descriptors stay open).

| workload | peer | cells | right | told | hang | spin | crash | loss | leak |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
END
my %sum;
for my $workload (@chosen) {
    for my $peer (@peers) {
        my $entry = $table{$workload}{$peer} or next;
        $sum{$peer}{$_} += $entry->{$_} // 0 for qw(cells right told), @bad;
        say "| `$workload` | $peer | ", join(' | ', map { $entry->{$_} || '–' } qw(cells right told), @bad), ' |';
    }
}
say "| **all** | $_ | ", do { my $s = $sum{$_}; join(' | ', map { $s->{$_} || '–' } qw(cells right told), @bad) }, ' |'
    for grep { $sum{$_} } @peers;
say "\n## Broken promises\n\nEach command repeats one cell.\n";
for my $peer (@peers) {
    my @of = grep { $_->[0] eq $peer } @faults;
    say "### $peer\n";
    say 'None.' unless @of;
    say "| verdict | command | what happened |\n| --- | --- | --- |" if @of;
    say "| $_->[5] | `scripts/hostile ", join(' ', @$_[0 .. 4]), "` | ", $_->[6] =~ s/\|/\\|/gr, ' |' for @of;
    say '';
}
say "## Excluded\n\nFor all peers alike.\n\n| call | errors | when | reason |\n| --- | --- | --- | --- |";
say "| $_->{call} | $_->{names} | $_->{when} | $_->{reason} |" =~ s/\| \* /| any /gr for @excluded;
