from rlzoo_zoo.data import Message as Message
from rlzoo_zoo.data import hold_out as hold_out
from rlzoo_zoo.data import messages_of as messages_of
from rlzoo_zoo.data import read as read
