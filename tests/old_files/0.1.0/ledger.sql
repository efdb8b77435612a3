CREATE TABLE IF NOT EXISTS occamroute_ledgers (
    id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL UNIQUE, format INTEGER NOT NULL,
    cap BIGINT NOT NULL, time_window TEXT NOT NULL, clock BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS occamroute_clients (
    ledger INTEGER NOT NULL, client TEXT NOT NULL, cap BIGINT NOT NULL, PRIMARY KEY (ledger, client)
);
-- Rows that change with every operation: with room beside them PostgreSQL need not touch their index.
CREATE TABLE IF NOT EXISTS occamroute_accounts (
    ledger INTEGER NOT NULL, scope TEXT NOT NULL, window_start BIGINT NOT NULL,
    held BIGINT NOT NULL CHECK (held >= 0), spent BIGINT NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (ledger, scope, window_start)
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS occamroute_holds (
    ledger INTEGER NOT NULL, hold_key TEXT NOT NULL, client TEXT, window_start BIGINT NOT NULL,
    amount BIGINT NOT NULL, expires BIGINT NOT NULL, state TEXT NOT NULL, maker BIGINT NOT NULL,
    PRIMARY KEY (ledger, hold_key)
);
CREATE INDEX IF NOT EXISTS occamroute_holds_due ON occamroute_holds (ledger, expires) WHERE state = 'held';
CREATE TABLE IF NOT EXISTS occamroute_entries (
    ledger INTEGER NOT NULL, number BIGINT NOT NULL, at BIGINT NOT NULL, event TEXT NOT NULL,
    hold_key TEXT NOT NULL, client TEXT, window_start BIGINT NOT NULL, held BIGINT NOT NULL, spent BIGINT NOT NULL,
    PRIMARY KEY (ledger, number)
);
INSERT INTO "occamroute_ledgers" ("id", "name", "format", "cap", "time_window", "clock") OVERRIDING SYSTEM VALUE VALUES (1, 'default', 1, 10000000000, 'total', 1795053264243);
INSERT INTO "occamroute_clients" ("ledger", "client", "cap") OVERRIDING SYSTEM VALUE VALUES (1, 'ann', 5000000000);
INSERT INTO "occamroute_accounts" ("ledger", "scope", "window_start", "held", "spent") OVERRIDING SYSTEM VALUE VALUES (1, 'ann', 0, 0, 1250000000);
INSERT INTO "occamroute_accounts" ("ledger", "scope", "window_start", "held", "spent") OVERRIDING SYSTEM VALUE VALUES (1, '', 0, 2000000000, 1250000000);
INSERT INTO "occamroute_holds" ("ledger", "hold_key", "client", "window_start", "amount", "expires", "state", "maker") OVERRIDING SYSTEM VALUE VALUES (1, 'settled', 'ann', 0, 500000000, 1795053324243, 'settled', 196621902604076168);
INSERT INTO "occamroute_holds" ("ledger", "hold_key", "client", "window_start", "amount", "expires", "state", "maker") OVERRIDING SYSTEM VALUE VALUES (1, 'released', NULL, 0, 500000000, 1795053324251, 'released', 9217041138766579036);
INSERT INTO "occamroute_holds" ("ledger", "hold_key", "client", "window_start", "amount", "expires", "state", "maker") OVERRIDING SYSTEM VALUE VALUES (1, 'expired', 'ann', 0, 1000000000, 1795053264260, 'expired', 5727195337980950520);
INSERT INTO "occamroute_holds" ("ledger", "hold_key", "client", "window_start", "amount", "expires", "state", "maker") OVERRIDING SYSTEM VALUE VALUES (1, 'held', NULL, 0, 2000000000, 2795053264266, 'held', 4420767990003036258);
INSERT INTO "occamroute_entries" ("ledger", "number", "at", "event", "hold_key", "client", "window_start", "held", "spent") OVERRIDING SYSTEM VALUE VALUES (1, 1, 1795053264243, 'reserve', 'settled', 'ann', 0, 500000000, 0);
INSERT INTO "occamroute_entries" ("ledger", "number", "at", "event", "hold_key", "client", "window_start", "held", "spent") OVERRIDING SYSTEM VALUE VALUES (1, 2, 1795053264247, 'settle', 'settled', 'ann', 0,  -500000000, 250000000);
INSERT INTO "occamroute_entries" ("ledger", "number", "at", "event", "hold_key", "client", "window_start", "held", "spent") OVERRIDING SYSTEM VALUE VALUES (1, 3, 1795053264251, 'reserve', 'released', NULL, 0, 500000000, 0);
INSERT INTO "occamroute_entries" ("ledger", "number", "at", "event", "hold_key", "client", "window_start", "held", "spent") OVERRIDING SYSTEM VALUE VALUES (1, 4, 1795053264255, 'release', 'released', NULL, 0,  -500000000, 0);
INSERT INTO "occamroute_entries" ("ledger", "number", "at", "event", "hold_key", "client", "window_start", "held", "spent") OVERRIDING SYSTEM VALUE VALUES (1, 5, 1795053264259, 'reserve', 'expired', 'ann', 0, 1000000000, 0);
INSERT INTO "occamroute_entries" ("ledger", "number", "at", "event", "hold_key", "client", "window_start", "held", "spent") OVERRIDING SYSTEM VALUE VALUES (1, 6, 1795053264265, 'expire', 'expired', 'ann', 0,  -1000000000, 1000000000);
INSERT INTO "occamroute_entries" ("ledger", "number", "at", "event", "hold_key", "client", "window_start", "held", "spent") OVERRIDING SYSTEM VALUE VALUES (1, 7, 1795053264266, 'reserve', 'held', NULL, 0, 2000000000, 0);
