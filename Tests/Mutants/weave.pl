# Puts the mutants of the lists into a copy of the sources, each behind a switch: perl weave.pl COPY LIST...
#
# Prints a line for each mutant: its number, its suites and its name, separated by tabs. Fails if one does not apply.
use strict;
use warnings;

my ($copy, @lists) = @ARGV;
my (@mutants, %ofFile, @errors);

# Reads the entries of a list: a name after '#', a file and its suites after '@', and lines as in a diff.
sub readList {
    my ($list) = @_;
    open my $input, '<', $list or die "$list: $!\n";
    my $mutant;
    while (my $line = <$input>) {
        chomp $line;
        if ($line =~ /^# (.+)/) {
            $mutant = { name => $1, number => @mutants + 1, before => [], old => [], new => [], after => [] };
            push @mutants, $mutant;
        } elsif ($line =~ /^\@ (\S+) (.+)/) {
            ($mutant->{file}, $mutant->{suites}) = ($1, $2);
            push @{ $ofFile{$1} }, $mutant;
        } elsif ($line =~ /^([-+ ]) *(.*?) *$/) {
            my $isBefore = !@{ $mutant->{old} };
            my $kind = $1 eq '-' ? 'old' : $1 eq '+' ? 'new' : $isBefore ? 'before' : 'after';
            push @{ $mutant->{$kind} }, $2;
        } elsif ($line ne '') {
            die "$list:$.: not a line of a mutant: $line\n";
        }
    }
}

# Splits a text at the commas that are outside all brackets and strings.
sub clauses {
    my ($text) = @_;
    my ($depth, $isInString, $clause, @clauses) = (0, 0, '');
    for my $character (split //, $text) {
        $isInString = !$isInString if $character eq '"';
        $depth++ if !$isInString && $character =~ /[(\[{]/;
        $depth-- if !$isInString && $character =~ /[)\]}]/;
        if ($character eq ',' && !$depth && !$isInString) {
            push @clauses, $clause;
            $clause = '';
        } else {
            $clause .= $character;
        }
    }
    return map { s/^\s+|\s+$//gr } @clauses, $clause;
}

sub isBalanced {
    my ($text) = @_;
    my $depth = 0;
    $text =~ s/"(?:[^"\\]|\\.)*"//g;
    for my $bracket ($text =~ /[(){}\[\]]/g) {
        $depth += $bracket =~ /[({\[]/ ? 1 : -1;
        return 0 if $depth < 0;
    }
    return $depth == 0;
}

# Switches between two lists of conditions, which may bind values: clause by clause.
sub switchConditions {
    my ($switch, $old, $new) = @_;
    my (@old, @new, @result) = ();
    @old = clauses($old);
    @new = clauses($new);
    while (@old || @new) {
        my ($left, $right) = (shift @old, shift @new);
        if (defined $left && defined $right && $left eq $right) {
            push @result, $left;
        } elsif (!defined $right || (defined $left && @old > @new)) {
            unshift @new, $right if defined $right;
            push @result, "($switch || ($left))";
        } elsif (!defined $left || @new > @old) {
            unshift @old, $left if defined $left;
            push @result, "(!$switch || ($right))";
        } elsif ($left =~ /^((?:let|var) [^=]+ = )(.+)/ && (my ($binding, $value) = ($1, $2))) {
            return unless index($right, $binding) == 0;
            push @result, "$binding$switch ? (" . substr($right, length $binding) . ") : ($value)";
        } else {
            push @result, "($switch ? ($right) : ($left))";
        }
    }
    return join ', ', @result;
}

# Switches between two texts of Swift or C. Returns nothing if their form is not known.
sub switchText {
    my ($number, $old, $new, $isC) = @_;
    my $switch = $isC ? "reactor_mutant($number)" : "mutant($number)";
    for my $form (\&switchBody, \&switchCase, \&switchGuard, \&switchHead, \&switchDeclaration, \&switchStatements) {
        my $text = $form->($number, $switch, $old, $new, $isC);
        return $text if defined $text;
    }
    return;
}

# Switches within a function, an accessor or a deferred statement that is in one line.
sub switchBody {
    my ($number, $switch, $old, $new, $isC) = @_;
    my $declarator = qr/(?:\@\w+(?:\(\w+\))? )*(?:\w+ )*(?:func|var|init|deinit|get|set|willSet|didSet|defer)\b/;
    return if $isC || $old !~ /^($declarator[^{]*?) ?\{ (.+) \}$/;
    my ($head, $body) = ($1, $2);
    return unless $new =~ /^\Q$head\E ?\{ ?(.*?) ?\}$/;
    my $text = switchText($number, $body, $1, $isC) // return;
    return "$head { $text }";
}

# Switches within a case that is in one line.
sub switchCase {
    my ($number, $switch, $old, $new, $isC) = @_;
    return if $isC || $old !~ /^((?:case .+?|default):) (.+)$/;
    my ($head, $body) = ($1, $2);
    return unless $new =~ /^\Q$head\E (.*)$/;
    my $text = switchText($number, $body, $1, $isC) // return;
    return "$head $text";
}

# Switches between the conditions of a guard, or between what follows them.
sub switchGuard {
    my ($number, $switch, $old, $new, $isC) = @_;
    my $guard = qr/^guard (.+) else \{(?: (.+) \})?$/;
    return unless $old =~ $guard;
    my ($oldCondition, $oldBody) = ($1, $2 // '');
    return unless $new =~ $guard;
    my ($newCondition, $newBody) = ($1, $2 // '');
    my $condition = switchConditions($switch, $oldCondition, $newCondition) // return;
    my $body = $oldBody eq $newBody ? $oldBody : switchText($number, $oldBody, $newBody, $isC) // return;
    return "guard $condition else {" . ($body eq '' ? '' : " $body }");
}

# Switches between the conditions of a statement whose body follows in the next lines.
sub switchHead {
    my ($number, $switch, $old, $new, $isC) = @_;
    return if isBalanced($old =~ s/^\} //r) && $old !~ /^if \(.*\)$/;
    return unless $old =~ /^((?:\} else )?if|while|for .+? in|switch) (.+?)( \{)?$/;
    my ($word, $condition, $end) = ($1, $2, $3 // '');
    return unless $new =~ /^\Q$word\E (.+?)\Q$end\E$/;
    return "$word ($switch ? $1 : $condition)$end" if $isC;
    $condition = switchConditions($switch, $condition, $1) // return;
    return "$word $condition$end";
}

# Switches between the values of a declaration.
sub switchDeclaration {
    my ($number, $switch, $old, $new, $isC) = @_;
    return if $isC || $old =~ /^(?:if|guard|while|for) /;
    return unless $old =~ /^((?:[\w()@]+ )*(?:let|var) [^=]+ = )(.+)$/;
    my ($head, $value) = ($1, $2);
    return unless $new =~ /^\Q$head\E(.+)$/;
    return "$head$switch ? ($1) : ($value)";
}

# Switches between whole statements, or leaves them out.
sub switchStatements {
    my ($number, $switch, $old, $new, $isC) = @_;
    return if !isBalanced($old) || !isBalanced($new) || $old =~ /^(?:\}|&&|\|\||\?|:|\.|defer\b)/;
    my $condition = $isC ? "($switch)" : $switch;
    my $negation = $isC ? "(!$switch)" : "!$switch";
    return $new eq '' ? "if $negation { $old }" : "if $condition { $new } else { $old }";
}

# Finds the places of a mutant in the lines of its file, without empty ones and comments: its first and its last old line.
sub places {
    my ($mutant, $lines) = @_;
    my @wanted = (@{ $mutant->{before} }, @{ $mutant->{old} }, @{ $mutant->{after} });
    my @code = grep { $lines->[$_] !~ m{^(?://|$)} } 0 .. $#$lines;
    my @found;
    for my $start (0 .. @code - @wanted) {
        next if grep { $lines->[ $code[ $start + $_ ] ] ne $wanted[$_] } 0 .. $#wanted;
        my $first = $start + @{ $mutant->{before} };
        push @found, [ $code[$first], $code[ $first + @{ $mutant->{old} } - 1 ] ];
    }
    return @found;
}

# Finds the one place of a mutant: its first and its last line. Notes an error if there is none, or if others overlap it.
sub claim {
    my ($mutant, $lines, $owner) = @_;
    my @places = places($mutant, $lines);
    if (@places != 1 || !@{ $mutant->{old} }) {
        push @errors, "$mutant->{name}: its lines are in $mutant->{file} " . @places . ' times';
        return;
    }
    my ($first, $last) = @{ $places[0] };
    if (grep { ($owner->[$_] // "$first-$last") ne "$first-$last" } $first .. $last) {
        push @errors, "$mutant->{name}: its lines overlap with those of another mutant in $mutant->{file}";
        return;
    }
    $owner->[$_] = "$first-$last" for $first .. $last;
    return "$first-$last";
}

# Puts the mutants of a file into it.
sub weave {
    my ($file, @ofFile) = @_;
    my $isC = $file =~ /\.c$/;
    open my $input, '<', "$copy/$file" or return push @errors, map { "$_->{name}: no file $file" } @ofFile;
    chomp(my @original = <$input>);
    my @lines = map { s/^\s+|\s+$//gr } @original;
    my (@owner, %texts);
    for my $mutant (@ofFile) {
        my $place = claim($mutant, \@lines, \@owner) // next;
        # Several lines are several statements, or one that is not complete before its end.
        my @old = @{ $mutant->{old} };
        my $separator = !isBalanced(join ' ', @old) || grep({ /[=,]$/ } @old) ? ' ' : "\n";
        my ($old, $new) = ($texts{$place} // join($separator, @old), join $separator, @{ $mutant->{new} });
        $texts{$place} = switchText($mutant->{number}, $old, $new, $isC) // $old;
        push @errors, "$mutant->{name}: no switch is known for lines of this form" if $texts{$place} eq $old;
    }
    for my $place (keys %texts) {
        my ($first, $last) = split /-/, $place;
        @original[ $first .. $last ] = ($texts{$place}, ('') x ($last - $first));
    }
    my $text = join '', map { "$_\n" } @original;
    $text =~ s/^#include/#include "mutant.h"\n#include/m if $isC;
    writeFile("$copy/$file", $text);
    writeSwitch($file);
}

sub writeFile {
    my ($path, $text) = @_;
    open my $output, '>', $path or die "$path: $!\n";
    print $output $text;
}

sub writeSwitch {
    my ($file) = @_;
    my ($module) = $file =~ m{^([^/]+)/};
    return writeFile("$copy/$module/mutant.h", <<'END') if $file =~ /\.c$/;
#include <stdbool.h>
#include <stdlib.h>

static inline bool reactor_mutant(int number) {
    const char *active = getenv("REACTOR_MUTANT");
    return active && atoi(active) == number;
}
END
    writeFile("$copy/$module/Mutant.swift", <<'END');
internal import Glibc

private let activeMutant: Int32 = unsafe getenv("REACTOR_MUTANT").map { unsafe atoi($0) } ?? 0

@usableFromInline
func mutant(_ number: Int32) -> Bool { activeMutant == number }
END
}

readList($_) for @lists;
for my $mutant (@mutants) {
    push @errors, "$mutant->{name}: no file and suites" unless $mutant->{file};
}
weave($_, @{ $ofFile{$_} }) for sort keys %ofFile;
die map { "$_\n" } @errors if @errors;
print map { "$_->{number}\t$_->{suites}\t$_->{name}\n" } @mutants;
