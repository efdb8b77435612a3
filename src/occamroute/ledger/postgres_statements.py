"""The rules of a ledger in PostgreSQL's own words: one statement does a whole operation, and decides by itself.

So nobody ever waits for a client while the ledger is locked, however far away it is and even if it is stopped. Each
statement is put together from the moment (the store's time and how the ledger stands), the one change that it makes,
and the books that follow from any change. Tables and rules are those of ``embedded``.
"""

from __future__ import annotations

__all__ = [
    "AT_ONCE",
    "BEGIN",
    "CLIENTS",
    "DROP_CLIENT",
    "END",
    "ENTRIES",
    "EXPIRE",
    "FIND",
    "IS_THERE",
    "LOCK",
    "NEWEST",
    "NOTE_CAP",
    "RESERVE",
    "SCHEMA",
    "SET_CAP",
    "SET_CLIENT",
    "STANDING",
]

SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS occamroute_ledgers (
    id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL UNIQUE, format INTEGER NOT NULL,
    cap BIGINT NOT NULL, time_window TEXT NOT NULL, clock BIGINT NOT NULL
)""",
    """
CREATE TABLE IF NOT EXISTS occamroute_clients (
    ledger INTEGER NOT NULL, client TEXT NOT NULL, cap BIGINT NOT NULL, PRIMARY KEY (ledger, client)
)""",
    # Rows that change with every operation: with room beside them PostgreSQL need not touch their index.
    """
CREATE TABLE IF NOT EXISTS occamroute_accounts (
    ledger INTEGER NOT NULL, scope TEXT NOT NULL, window_start BIGINT NOT NULL,
    held BIGINT NOT NULL CHECK (held >= 0), spent BIGINT NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (ledger, scope, window_start)
) WITH (fillfactor = 50)""",
    """
CREATE TABLE IF NOT EXISTS occamroute_holds (
    ledger INTEGER NOT NULL, hold_key TEXT NOT NULL, client TEXT, window_start BIGINT NOT NULL,
    amount BIGINT NOT NULL, expires BIGINT NOT NULL, state TEXT NOT NULL, maker BIGINT NOT NULL,
    PRIMARY KEY (ledger, hold_key)
)""",
    "CREATE INDEX IF NOT EXISTS occamroute_holds_due ON occamroute_holds (ledger, expires) WHERE state = 'held'",
    """
CREATE TABLE IF NOT EXISTS occamroute_entries (
    ledger INTEGER NOT NULL, number BIGINT NOT NULL, at BIGINT NOT NULL, event TEXT NOT NULL,
    hold_key TEXT NOT NULL, client TEXT, window_start BIGINT NOT NULL, held BIGINT NOT NULL, spent BIGINT NOT NULL,
    PRIMARY KEY (ledger, number)
)""",
)

# A statement sees what was there when it began, so the lock is a statement of its own, before. It ends with the
# transaction. The first number keeps it apart from other programs' locks.
LOCK = "SELECT pg_advisory_xact_lock(1868784481, %(ledger)s::integer)"
# However many leases are over at once, no statement takes longer than it takes to expire these.
AT_ONCE = 1000

MOMENT = """
WITH timed AS MATERIALIZED (
    SELECT id, cap, time_window, clock,
        greatest(clock, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
    FROM occamroute_ledgers WHERE id = %(ledger)s::integer
), moment AS MATERIALIZED (
    SELECT timed.*, CASE time_window WHEN 'total' THEN 0 ELSE
        (extract(epoch FROM date_trunc(time_window, to_timestamp(now / 1000.0), 'UTC')) * 1000)::bigint END AS start,
        EXISTS (
            SELECT FROM occamroute_holds WHERE ledger = id AND state = 'held' AND expires <= now
        ) AS due,
        coalesce((SELECT max(number) FROM occamroute_entries WHERE ledger = id), 0) AS last
    FROM timed
)"""

ACCOUNTS = """, standing AS MATERIALIZED (
    SELECT moment.*, coalesce(everybody.held, 0) AS held, coalesce(everybody.spent, 0) AS spent,
        own.cap AS own_cap, coalesce(mine.held, 0) AS own_held, coalesce(mine.spent, 0) AS own_spent
    FROM moment
    LEFT JOIN occamroute_accounts AS everybody
        ON everybody.ledger = id AND everybody.scope = '' AND everybody.window_start = start
    LEFT JOIN occamroute_clients AS own ON own.ledger = id AND own.client = %(client)s::text
    LEFT JOIN occamroute_accounts AS mine
        ON mine.ledger = id AND mine.scope = %(client)s::text AND mine.window_start = start
)"""

# From ``changed`` (place, event, hold_key, client, window_start, held, spent): entries, and the latest moment seen,
# now and then, since time may not run backwards, or a window would begin twice.
NOTES = """, noted AS (
    INSERT INTO occamroute_entries
    SELECT id, last + place, now, event, hold_key, client, window_start, held, spent FROM changed, moment
), ticked AS (
    UPDATE occamroute_ledgers AS ledger SET clock = now FROM moment
    WHERE ledger.id = moment.id AND EXISTS (SELECT FROM changed)
        AND (now >= moment.clock + 1000 OR moment.clock < start)
)"""

# Everybody's account, whose scope is empty, and the client's.
SUMS = """, sums AS (
    SELECT id, scope, window_start, sum(held)::bigint AS held, sum(spent)::bigint AS spent
    FROM changed, moment, unnest(ARRAY['', client]) AS scope WHERE scope IS NOT NULL GROUP BY id, scope, window_start
)"""

REBOOKED = """, booked AS (
    UPDATE occamroute_accounts AS account SET held = account.held + sums.held, spent = account.spent + sums.spent
    FROM sums WHERE ledger = id AND account.scope = sums.scope AND account.window_start = sums.window_start
)"""

STANDING = f"""{MOMENT}{ACCOUNTS}
SELECT due, now, start, time_window, cap, held, spent, own_cap, own_held, own_spent FROM standing"""

# ``whatever``: do it even though leases are over that nobody has expired yet.
RESERVE = f"""{MOMENT}{ACCOUNTS}, known AS (
    SELECT amount, state, maker FROM occamroute_holds, moment WHERE ledger = id AND hold_key = %(key)s::text
), fitting AS (
    SELECT standing.*, least(cap - held - spent, own_cap - own_held - own_spent) AS available FROM standing
), made AS (
    INSERT INTO occamroute_holds
    SELECT id, %(key)s::text, %(client)s::text, start, %(amount)s::bigint, now + %(lease)s::bigint, 'held',
        %(maker)s::bigint
    FROM fitting
    WHERE (%(whatever)s::boolean OR NOT due) AND NOT EXISTS (SELECT FROM known) AND %(amount)s::bigint <= available
    RETURNING hold_key, client, window_start, amount, state, maker
), changed AS (
    SELECT 1 AS place, 'reserve' AS event, hold_key, client, window_start, amount AS held, 0::bigint AS spent FROM made
){NOTES}{SUMS}, booked AS (
    INSERT INTO occamroute_accounts AS account SELECT * FROM sums
    ON CONFLICT (ledger, scope, window_start) DO UPDATE SET held = account.held + excluded.held
)
SELECT due, available, hold.amount, hold.state, hold.maker FROM fitting
LEFT JOIN (SELECT * FROM known UNION ALL SELECT amount, state, maker FROM made) AS hold ON true"""

END = f"""{MOMENT}, known AS (
    SELECT hold_key, client, window_start, amount, state FROM occamroute_holds, moment
    WHERE ledger = id AND hold_key = %(key)s::text
), ended AS (
    UPDATE occamroute_holds AS hold SET state = %(state)s::text FROM known, moment
    WHERE hold.ledger = moment.id AND hold.hold_key = known.hold_key AND known.state IN ('held', 'expired')
        AND (%(whatever)s::boolean OR NOT due)
    RETURNING known.*
), changed AS (
    SELECT 1 AS place, CASE %(state)s::text WHEN 'settled' THEN 'settle' ELSE 'release' END AS event,
        hold_key, client, window_start, CASE state WHEN 'held' THEN -amount ELSE 0 END AS held,
        %(spent)s::bigint - CASE state WHEN 'held' THEN 0 ELSE amount END AS spent
    FROM ended
){NOTES}{SUMS}{REBOOKED}
SELECT due, known.state FROM moment LEFT JOIN known ON true"""

EXPIRE = f"""{MOMENT}, over AS (
    SELECT hold_key FROM occamroute_holds, moment
    WHERE ledger = id AND state = 'held' AND expires <= now ORDER BY expires LIMIT {AT_ONCE}
), expired AS (
    UPDATE occamroute_holds AS hold SET state = 'expired' FROM over, moment
    WHERE hold.ledger = moment.id AND hold.hold_key = over.hold_key
    RETURNING hold.hold_key, hold.client, hold.window_start, hold.amount, hold.expires
), changed AS (
    SELECT row_number() OVER (ORDER BY expires, hold_key) AS place, 'expire' AS event, hold_key, client, window_start,
        -amount AS held, amount AS spent
    FROM expired
){NOTES}{SUMS}{REBOOKED}
SELECT count(*) FROM expired"""

SET_CAP = "UPDATE occamroute_ledgers SET cap = %(cap)s::bigint WHERE id = %(ledger)s::integer"
SET_CLIENT = """
INSERT INTO occamroute_clients VALUES (%(ledger)s::integer, %(client)s::text, %(cap)s::bigint)
ON CONFLICT (ledger, client) DO UPDATE SET cap = excluded.cap"""
DROP_CLIENT = "DELETE FROM occamroute_clients WHERE ledger = %(ledger)s::integer AND client = %(client)s::text"
NOTE_CAP = f"""{MOMENT}
INSERT INTO occamroute_entries
SELECT id, last + 1, now, 'cap', %(words)s::text, %(client)s::text, start, 0, 0 FROM moment
RETURNING number"""

ENTRIES = """
SELECT number, at, event, hold_key, client, window_start, held, spent FROM occamroute_entries
WHERE ledger = %(ledger)s::integer AND number > %(after)s::bigint AND number < %(before)s::bigint
ORDER BY number LIMIT %(limit)s::bigint"""
NEWEST = ENTRIES.replace("ORDER BY number", "ORDER BY number DESC")

FIND = "SELECT id, format, cap, time_window FROM occamroute_ledgers WHERE name = %(name)s::text"
BEGIN = """
INSERT INTO occamroute_ledgers (name, format, cap, time_window, clock)
VALUES (%(name)s::text, %(format)s::integer, %(cap)s::bigint, %(window)s::text, 0)"""
IS_THERE = "SELECT to_regclass('occamroute_entries')"
CLIENTS = "SELECT client, cap FROM occamroute_clients WHERE ledger = %(ledger)s::integer"
