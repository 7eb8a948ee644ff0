# fish reads this file at the first TAB behind `tailrace`.
tailrace completion fish | source
